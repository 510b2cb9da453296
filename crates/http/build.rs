//! The page is embedded: a change of its files is a change of the program.

fn main() {
    println!("cargo:rerun-if-changed=page");
}
