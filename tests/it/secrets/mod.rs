//! What is sealed: under which key, through rotations and erasures, and that nothing of it stands anywhere else.

mod canary;
mod cores;
mod rotation;
