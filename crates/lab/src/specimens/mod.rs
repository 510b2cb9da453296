//! Protocols that are wrong on purpose, to see that the checker finds out.
