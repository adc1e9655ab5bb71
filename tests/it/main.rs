//! Black-box tests, one binary: every binary links the whole tree. This file only declares the modules.

mod parts;
mod support;
mod tidy;
