//! Operations: durable receipts of accepted work, and how they end.
