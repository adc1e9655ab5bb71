//! Projections as operators see them: list, rebuild, verify.
