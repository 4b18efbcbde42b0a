//! Times the upkeep of a store: `maintain STORE` opens it, rebuilds nothing, and prints the milliseconds that a
//! clean-up (dry, then real) and a check take.

use std::path::Path;
use std::time::{Duration, Instant};

use atoll_store::{Result, Store};

fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: maintain STORE");
        std::process::exit(2);
    };
    let mut last = Instant::now();
    let mut lap = |what: &str| {
        println!("{what}: {} ms", last.elapsed().as_millis());
        last = Instant::now();
    };
    let store = Store::open(Path::new(&dir))?;
    lap("open");
    println!("{:?}", store.stats()?);
    println!("{:?}", store.gc(Duration::from_secs(14 * 24 * 3600), true)?);
    lap("clean-up, dry");
    println!("{:?}", store.gc(Duration::from_secs(14 * 24 * 3600), false)?);
    lap("clean-up");
    let report = store.check(&mut |_| ())?;
    println!("{} objects, {} commits, {} problems", report.objects, report.commits, report.problems.len());
    lap("check");
    Ok(())
}
