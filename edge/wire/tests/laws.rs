//! The laws of the wire: golden bytes, what is refused and why, and properties that hold for every input.

// A test that cannot go on stops here, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "laws/bodies.rs"]
mod bodies;
#[path = "laws/cells.rs"]
mod cells;
#[path = "laws/flips.rs"]
mod flips;
#[path = "laws/frames.rs"]
mod frames;
#[path = "laws/given.rs"]
mod given;
#[path = "laws/golden.rs"]
mod golden;
#[path = "laws/hostile.rs"]
mod hostile;
#[path = "laws/props.rs"]
mod props;
#[path = "laws/refusals.rs"]
mod refusals;
#[path = "laws/secrets.rs"]
mod secrets;
#[path = "laws/snapshots.rs"]
mod snapshots;
