//! Figures, not assertions on time: `cargo test --release -p atoll-fs --test overlay_speed -- --ignored --nocapture`.

mod overlay_support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use overlay_support::{Bench, Scratch, bytes, can_mount};

/// Milliseconds that `find` takes for one stat walk.
fn walk(dir: &std::path::Path) -> f64 {
    let start = Instant::now();
    let status =
        Command::new("find").arg(dir).args(["-printf", "%s %C@\n"]).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn captures_of_a_hundred_thousand_new_files() {
    if !can_mount() {
        return;
    }
    for scratch in [Scratch::Disk, Scratch::Memory] {
        let mut bench = Bench::new(scratch, |lower| {
            for at in 0..1000 {
                fs::write(lower.join(format!("base{at}")), bytes(at, 4096)).unwrap();
            }
        });
        let text: Vec<u8> =
            (0..4096u32).map(|at| b"words of a text that packs well\n"[at as usize % 32]).collect();
        for dir in 0..400u64 {
            fs::create_dir(bench.ws(&format!("d{dir}"))).unwrap();
            for at in 0..250u64 {
                let mut content = text.clone();
                content[..2000].copy_from_slice(&bytes(dir * 1000 + at, 2000));
                fs::write(bench.ws(&format!("d{dir}/f{at}")), content).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        let done = bench.commit();
        let first = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(done.read_files, 100_000);
        let (mut walks, mut seconds) = (Vec::new(), Vec::new());
        for round in 0..7u64 {
            for at in 0..10 {
                let name = format!("d{}/f{at}", (round * 13 + at) % 400);
                let mut file = fs::OpenOptions::new().append(true).open(bench.ws(&name)).unwrap();
                file.write_all(&bytes(round, 10)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(50));
            walks.push(walk(&bench.upper()));
            let start = Instant::now();
            let done = bench.commit();
            seconds.push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(done.read_files, 10, "{done:?}");
        }
        let (walk, second) = (median(walks), median(seconds));
        println!(
            "{scratch:?}: first {first:.0} ms, then with 10 changed {second:.0} ms, a walk {walk:.0} ms, beyond it \
             {:.0} ms",
            second - walk
        );
    }
}
