//! What can happen.
