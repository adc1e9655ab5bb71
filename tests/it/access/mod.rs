//! Who may do what: roles in tenants and with single domains, tokens that are limited, every route for everybody, and
//! streams whose readers lose what they read.

mod matrix;
mod roles;
mod scopes;
mod streams;
