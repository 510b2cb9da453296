//! `holdall protocols`: what there is, what it assumes, what it promises.
