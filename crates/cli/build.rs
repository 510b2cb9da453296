//! How the program is linked.
//!
//! It is loaded where it was linked for. Otherwise the loader would write an address into each of some hundred pages before
//! `holdall run` does anything, of which a fork and the end of the process then have more to do. The price: its own code and
//! statics are where anybody can know; stack, heap and libraries are not.
//!
//! What unwinds a stack is in the program itself: to load a library for it takes 0.09 ms of each `holdall run`.
//! The standard library asks for it by the name of the shared library, so a directory that is searched before those of the
//! compiler has a script of that name, which stands for the static one.

use std::env::var;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let target = |what: &str| var(format!("CARGO_CFG_TARGET_{what}"));
    if target("OS").as_deref() != Ok("linux") || target("ENV").as_deref() != Ok("gnu") {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-no-pie");
    if let (Some(unwinder), Ok(dir)) = (static_unwinder(), var("OUT_DIR")) {
        // It goes when the compiler is replaced.
        println!("cargo:rerun-if-changed={}", unwinder.display());
        let script = format!("INPUT(\"{}\")\n", unwinder.display());
        if std::fs::write(Path::new(&dir).join("libgcc_s.so"), script).is_ok() {
            println!("cargo:rustc-link-arg-bins=-L{dir}");
        }
    }
}

/// The static library, if the compiler that links has one.
fn static_unwinder() -> Option<PathBuf> {
    let native = var("HOST") == var("TARGET");
    let linker = var("RUSTC_LINKER").ok().or_else(|| native.then(|| "cc".into()))?;
    let told = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim());
    (path.is_absolute() && path.is_file()).then_some(path)
}
