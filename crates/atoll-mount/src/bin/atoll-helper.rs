//! The helper processes without Python, for tests: `atoll-helper supervisor …`.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(atoll_mount::main(&args));
}
