//! `holdall check`.
