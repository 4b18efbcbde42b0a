//! The cgroup of one command: so that nothing of it is left, that it can be frozen, limited and measured.
//!
//! Version 2 is used wherever it is mounted, also beside version 1 (its `cgroup.kill` and `cgroup.freeze` need no
//! controller). A limit takes its controller from version 2 or, failing that, from version 1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use atoll_store::{Code, Error, Result};

use super::spec::Limits;
use crate::overlay::{Mount, mounts};

/// One command's cgroups; removed by [`Group::remove`].
#[derive(Debug, Default)]
pub(super) struct Group {
    /// In the version 2 hierarchy.
    pub(super) unified: Option<PathBuf>,
    /// In version 1 hierarchies: controller and folder.
    pub(super) v1: Vec<(&'static str, PathBuf)>,
    /// Where the launcher itself belongs: the `cgroup.procs` to go back to.
    homes: Vec<PathBuf>,
    /// The launcher could not leave again.
    inside: bool,
}

/// A controller's value, and the file it goes to in version 2 and 1.
struct Setting {
    controller: &'static str,
    v2: (&'static str, String),
    v1: Vec<(&'static str, String)>,
    option: &'static str,
}

fn settings(limits: &Limits) -> Vec<Setting> {
    let mut out = Vec::new();
    if let Some(bytes) = limits.memory {
        let text = bytes.to_string();
        let v1 = vec![("memory.limit_in_bytes", text.clone())];
        out.push(Setting { controller: "memory", v2: ("memory.max", text), v1, option: "--memory" });
    }
    if let Some(cpus) = limits.cpus {
        let period = 100_000;
        let quota = (cpus * f64::from(period)).max(1000.0) as u64;
        let v1 = vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
        out.push(Setting {
            controller: "cpu",
            v2: ("cpu.max", format!("{quota} {period}")),
            v1,
            option: "--cpus",
        });
    }
    if let Some(pids) = limits.pids {
        // One more while the launcher is inside to start the command; see `leave`.
        let text = (pids + 1).to_string();
        let v1 = vec![("pids.max", text.clone())];
        out.push(Setting { controller: "pids", v2: ("pids.max", text), v1, option: "--pids" });
    }
    out
}

impl Group {
    /// Makes the cgroups that there can be.
    ///
    /// # Errors
    /// `Unsupported` when a limit was asked for and cannot be kept: a limit in name only is worse than none.
    pub(super) fn create(limits: &Limits) -> Result<Self> {
        let mounts = mounts().unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let name = format!("atoll-{}", std::process::id());
        let mut group = Group::default();
        let wanted = settings(limits);
        group.create_unified(&mounts, &own, &name, &wanted);
        if group.unified.is_none() {
            group.create_v1(&mounts, &own, &name, "freezer");
        }
        for setting in &wanted {
            if let Err(cause) = group.apply(&mounts, &own, &name, setting) {
                group.remove();
                return Err(Error::new(
                    Code::Unsupported,
                    format!(
                        "{} cannot be kept here: no cgroup with the '{}' controller can be made ({cause}); 'atoll \
                         doctor' names what would allow it.",
                        setting.option, setting.controller
                    ),
                ));
            }
        }
        Ok(group)
    }

    fn create_unified(&mut self, mounts: &[Mount], own: &str, name: &str, wanted: &[Setting]) {
        let Some(mount) =
            mounts.iter().find(|mount| mount.fs_type == "cgroup2" && mount.root == Path::new("/"))
        else {
            return;
        };
        let Some(home) = own.lines().find_map(|line| line.strip_prefix("0::")) else { return };
        let home = mount.target.join(home.trim_start_matches('/'));
        let mut parents = vec![home.clone()];
        // A group with processes in it cannot hand controllers on, the root can: only for those who may.
        if !wanted.is_empty() && rustix::process::geteuid().is_root() {
            let top = mount.target.join("atoll");
            if fs::create_dir_all(&top).is_ok() {
                for setting in wanted {
                    let text = format!("+{}", setting.controller);
                    let _ = fs::write(mount.target.join("cgroup.subtree_control"), &text);
                    let _ = fs::write(top.join("cgroup.subtree_control"), &text);
                }
                let complete = wanted.iter().all(|setting| {
                    fs::read_to_string(top.join("cgroup.subtree_control"))
                        .is_ok_and(|text| text.split_whitespace().any(|word| word == setting.controller))
                });
                if complete {
                    parents.insert(0, top);
                } else {
                    let _ = fs::remove_dir(&top);
                }
            }
        }
        for parent in parents {
            let path = parent.join(name);
            // Kernels before 5.14 have no `cgroup.kill`; freezing and killing one by one does the same.
            if fs::create_dir(&path).is_ok() {
                if path.join("cgroup.procs").exists() && may_move(&home) {
                    self.unified = Some(path);
                    self.homes.push(home.join("cgroup.procs"));
                    return;
                }
                let _ = fs::remove_dir(&path);
            }
        }
    }

    fn create_v1(
        &mut self,
        mounts: &[Mount],
        own: &str,
        name: &str,
        controller: &'static str,
    ) -> Option<PathBuf> {
        if let Some((_, path)) = self.v1.iter().find(|(have, _)| *have == controller) {
            return Some(path.clone());
        }
        let has = |list: &str| list.split(',').any(|word| word == controller);
        let mount = mounts
            .iter()
            .find(|mount| mount.fs_type == "cgroup" && mount.options.contains_key(controller))?;
        let home = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            has(controllers).then_some(path)
        })?;
        let home = mount.target.join(home.trim_start_matches('/'));
        let path = home.join(name);
        fs::create_dir(&path).ok()?;
        self.v1.push((controller, path.clone()));
        self.homes.push(home.join("cgroup.procs"));
        Some(path)
    }

    fn apply(&mut self, mounts: &[Mount], own: &str, name: &str, setting: &Setting) -> io::Result<()> {
        let (file, text) = &setting.v2;
        if let Some(path) =
            self.unified.as_ref().map(|unified| unified.join(file)).filter(|path| path.exists())
        {
            return fs::write(path, text);
        }
        let path = self
            .create_v1(mounts, own, name, setting.controller)
            .ok_or_else(|| io::Error::other("it is not delegated to this user"))?;
        setting.v1.iter().try_for_each(|(file, text)| fs::write(path.join(file), text))
    }

    /// All folders of the group.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.unified.iter().chain(self.v1.iter().map(|(_, path)| path))
    }

    /// Moves this process in, so that what it starts begins there.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.paths().try_for_each(|path| fs::write(path.join("cgroup.procs"), "0"))
    }

    /// Moves this process out again.
    pub(super) fn leave(&mut self, limits: &Limits) {
        self.inside = !self.homes.iter().all(|home| fs::write(home, "0").is_ok());
        if let (Some(pids), false) = (limits.pids, self.inside) {
            let v1 = self.v1.iter().find(|(controller, _)| *controller == "pids").map(|(_, path)| path);
            if let Some(path) = v1.or(self.unified.as_ref()) {
                let _ = fs::write(path.join("pids.max"), pids.to_string());
            }
        }
    }

    /// The folder that holds the processes, if there is one.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.unified.as_ref().or_else(|| self.v1.first().map(|(_, path)| path))
    }

    /// The file that freezes the group, with what freezes and what thaws it.
    pub(super) fn freezer(&self) -> Option<(PathBuf, &'static str, &'static str)> {
        if let Some(path) = &self.unified {
            return Some((path.join("cgroup.freeze"), "1", "0"));
        }
        let (_, path) = self.v1.iter().find(|(controller, _)| *controller == "freezer")?;
        Some((path.join("freezer.state"), "FROZEN", "THAWED"))
    }

    /// Every process in the group and the groups below it, this one left out.
    pub(super) fn processes(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let mut pids = Vec::new();
        if let Some(path) = self.path() {
            collect(path, &mut pids);
        }
        pids.retain(|pid| *pid != own);
        pids
    }

    /// Ends all at once where the kernel can (5.14). `false`: one by one is left to the caller.
    pub(super) fn kill(&self) -> bool {
        if let Some((file, _, thaw)) = self.freezer() {
            let _ = fs::write(file, thaw);
        }
        match &self.unified {
            Some(path) if !self.inside => fs::write(path.join("cgroup.kill"), "1").is_ok(),
            _ => false,
        }
    }

    /// Seconds of processor time so far, children of children and the killed included.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let text = fs::read_to_string(self.unified.as_ref()?.join("cpu.stat")).ok()?;
        let usec = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(usec.trim().parse::<u64>().ok()? as f64 / 1e6)
    }

    /// The most memory that all processes had together, where the controller counts it.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let v1 = self.v1.iter().find(|(controller, _)| *controller == "memory");
        let file = match v1 {
            Some((_, path)) => path.join("memory.max_usage_in_bytes"),
            None => self.unified.as_ref()?.join("memory.peak"),
        };
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// How often the kernel ended a process for want of memory.
    pub(super) fn oom_kills(&self) -> u64 {
        let v1 = self.v1.iter().find(|(controller, _)| *controller == "memory");
        let file = match (v1, &self.unified) {
            (Some((_, path)), _) => path.join("memory.oom_control"),
            (None, Some(path)) => path.join("memory.events"),
            (None, None) => return 0,
        };
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .and_then(|n| n.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Removes the folders; `false` when processes are still in one.
    pub(super) fn remove(&mut self) -> bool {
        if self.inside {
            let _ = self.homes.iter().try_for_each(|home| fs::write(home, "0"));
        }
        let gone = |path: &PathBuf| remove_tree(path).is_ok();
        if self.unified.as_ref().is_some_and(gone) {
            self.unified = None;
        }
        self.v1.retain(|(_, path)| !gone(path));
        self.unified.is_none() && self.v1.is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Moving a process asks for the right to write the common ancestor's `cgroup.procs`, here the home's.
fn may_move(home: &Path) -> bool {
    let file = home.join("cgroup.procs");
    rustix::fs::access(&file, rustix::fs::Access::WRITE_OK).is_ok()
}

fn collect(path: &Path, pids: &mut Vec<i32>) {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in folders(path) {
        collect(&child, pids);
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|e| e.path())
        .collect()
}

fn remove_tree(path: &Path) -> io::Result<()> {
    for child in folders(path) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_processor_is_half_of_the_period() {
        let limits = Limits { cpus: Some(0.5), memory: Some(1 << 20), pids: None };
        let settings = settings(&limits);
        assert_eq!(settings[0].v2, ("memory.max", "1048576".to_owned()));
        assert_eq!(settings[1].v2, ("cpu.max", "50000 100000".to_owned()));
    }

    #[test]
    fn no_limit_never_fails() {
        let mut group = Group::create(&Limits::default()).unwrap();
        assert!(group.remove());
    }
}
