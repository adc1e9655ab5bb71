//! Level-triggered deployment: a worker per DNS cluster makes what is active what is desired.
