//! The command line: one noun and verb per action.
