//! Bodies of DNS clusters.
