//! `desired`: what the API reads. Kept in the append, so that a writer reads
//! its own writes; rebuilt beside the live one and switched.

mod change;
mod clusters;
mod edges;
mod life;
mod people;
mod webhooks;

pub use change::{
    Changes, DomainTouch, EDGE_KINDS, Folded, OperationRow, RrsetPut, RrsetRow, concerns_edges, fold,
    operation_row, pause_key,
};
