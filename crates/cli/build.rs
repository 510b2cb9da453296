//! How the program is linked.
//!
//! It is loaded where it was linked for. Otherwise the loader would write an address into each of some hundred pages before
//! `holdall run` does anything, of which a fork and the end of the process then have more to do. The price: its own code and
//! statics are where anybody can know; stack, heap and libraries are not.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}"));
    if target("OS").as_deref() == Ok("linux") && target("ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
