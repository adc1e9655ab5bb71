//! Bodies of tenants, users and tokens.
