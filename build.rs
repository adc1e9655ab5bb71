//! Builds again when a migration is added: the migrations are part of the program, and a macro that reads a directory
//! does not notice a new file in it by itself.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
