//! Which processes a process has, found in `/proc`.

use std::collections::HashMap;
use std::fs;

/// A process that is there, zombies left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) name: String,
}

/// Parses `/proc/PID/stat`: the name stands in parentheses and may hold any byte, also `)`.
fn parse(text: &str) -> Option<(Process, char)> {
    let (start, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some((Process { pid: start.parse().ok()?, parent, name: name.to_owned() }, state))
}

pub(super) fn lookup(pid: i32) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (process, state) = parse(&String::from_utf8_lossy(&bytes))?;
    (!matches!(state, 'Z' | 'X')).then_some(process)
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .filter_map(lookup)
        .collect()
}

/// Everything below `root`, itself left out. With `root` a subreaper this is all that its children ever started.
pub(super) fn descendants(root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            open.push(child.pid);
            found.push(child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let (process, state) = parse("12 (a ) (b) S 7 12 12 0 -1").unwrap();
        assert_eq!(process, Process { pid: 12, parent: 7, name: "a ) (b".to_owned() });
        assert_eq!(state, 'S');
    }

    #[test]
    fn finds_a_child_of_a_child() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 20; true"]).spawn().unwrap();
        let names = || descendants(std::process::id() as i32).into_iter().map(|p| p.name).collect::<Vec<_>>();
        while !names().contains(&"sleep".to_owned()) {
            std::thread::yield_now();
        }
        for process in descendants(child.id() as i32) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), nix::sys::signal::SIGKILL)
                .unwrap();
        }
        child.wait().unwrap();
    }
}
