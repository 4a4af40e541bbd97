//! The program starts. That this test exists also makes every test command build the binary, which the suite drives.

use std::process::Command;

#[test]
fn the_program_names_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .arg("--version")
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", output.status);
    assert!(said.contains(env!("CARGO_PKG_VERSION")), "{said}");
}
