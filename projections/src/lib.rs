//! What it means to a reader.
