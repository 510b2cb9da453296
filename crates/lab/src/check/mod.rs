//! The checker.
