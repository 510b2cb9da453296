//! `holdall sim`.
