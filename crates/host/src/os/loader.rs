//! Kernel arguments of package-based systems, through their boot loader.
//!
//! Four kinds are supported: grub with a directory of settings (Debian and its kin), `grubby`
//! (Fedora and its kin), boot loader entries with `/etc/kernel/cmdline` (systemd-boot), and unified
//! kernel images, which `kernel-install` builds with that file. A machine that was booted by
//! systemd-boot may have grub, too, which is not used then.
//!
//! `/boot` may be a file system of its own. All that a tool wrote there is durable before the step
//! counts as done, so that the record of the config is never ahead of the boot loader.

use super::{CommandRunner, words};
use crate::{
    root::Root,
    system::{Restored, SystemError},
};

const GRUB_FOLDER: &str = "/etc/default/grub.d";
/// Read after the distribution's own settings.
const GRUB_SETTINGS: &str = "/etc/default/grub.d/90-mco.cfg";
const UPDATE_GRUB: &str = "/usr/sbin/update-grub";
const GRUB_MKCONFIG: &str = "/usr/sbin/grub-mkconfig";
const GRUB_CONFIG: &str = "/boot/grub/grub.cfg";
const NEW_GRUB_CONFIG: &str = "/boot/grub/grub.cfg.mco-new";
const FSFREEZE: &str = "/usr/sbin/fsfreeze";
const GRUBBY: &str = "/usr/sbin/grubby";
/// Directories of boot loader entries, by the place where the boot partition is mounted.
const ENTRIES: [&str; 3] =
    ["/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries"];
/// The environment of GRUB, in which Fedora keeps kernel arguments, too.
const GRUB_ENVIRONMENT: &str = "/boot/grub2/grubenv";
/// Kernel arguments of new entries.
const CMDLINE: &str = "/etc/kernel/cmdline";

/// Builds the kernel images and entries of systemd-boot.
const KERNEL_INSTALL: &str = "/usr/bin/kernel-install";
/// Directories of unified kernel images.
const KERNEL_IMAGES: [&str; 3] = ["/boot/EFI/Linux", "/efi/EFI/Linux", "/boot/efi/EFI/Linux"];
/// EFI variable with the name of the boot loader that booted the machine.
const LOADER_INFO: &str =
    "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// A supported boot loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loader {
    Grub,
    Grubby,
    Entries,
    KernelInstall,
}

fn detect(root: &Root) -> Result<Option<Loader>, SystemError> {
    let systemd_boot = || -> Result<Option<Loader>, SystemError> {
        Ok(if !entries(root)?.is_empty() {
            Some(Loader::Entries)
        } else if root.exists(CMDLINE)? && root.exists(KERNEL_INSTALL)? {
            Some(Loader::KernelInstall)
        } else {
            None
        })
    };
    if booted_by_systemd_boot(root)
        && let Some(found) = systemd_boot()?
    {
        return Ok(Some(found));
    }
    if root.directory(GRUB_FOLDER)?.is_some() && root.exists(UPDATE_GRUB)? {
        return Ok(Some(Loader::Grub));
    }
    if root.exists(GRUBBY)? { Ok(Some(Loader::Grubby)) } else { systemd_boot() }
}

fn booted_by_systemd_boot(root: &Root) -> bool {
    // An unreadable variable says nothing. The text is UTF-16.
    let bytes = root.read(LOADER_INFO).ok().flatten().unwrap_or_default();
    let text: String = bytes.iter().filter(|byte| **byte != 0).map(|byte| *byte as char).collect();
    text.contains("systemd-boot")
}

/// Stages kernel arguments: removes one list and adds the other.
pub(crate) fn stage(
    root: &Root,
    runner: &dyn CommandRunner,
    remove: &[String],
    add: &[String],
) -> Result<(), SystemError> {
    let (remove, add) = (words(remove), words(add));
    match detect(root)? {
        Some(Loader::Grub) => grub(root, runner, &settings(&add)),
        Some(Loader::Grubby) => grubby(root, runner, &remove, &add),
        Some(Loader::Entries) => edit_entries(root, &remove, &add),
        Some(Loader::KernelInstall) => {
            edit_cmdline(root, &remove, &add)?;
            // Always: a crash may have happened between the write and this command.
            build_images(root, runner)
        }
        None => Err(SystemError::Os {
            what: format!(
                "this machine cannot change kernel arguments (-[{}] +[{}]): it has neither \
                 {GRUB_FOLDER} with {UPDATE_GRUB}, nor {GRUBBY}, nor entries in {}, nor {CMDLINE} \
                 with {KERNEL_INSTALL}. Set them by hand, or remove them from the config",
                remove.join(" "),
                add.join(" "),
                ENTRIES.join(", ")
            ),
        }),
    }
}

/// Returns the current settings of the boot loader as JSON; none if there is no supported one.
pub(crate) fn staged(root: &Root) -> Result<Option<String>, SystemError> {
    let kept: Vec<(String, String)> = match detect(root)? {
        Some(Loader::Grub) => vec![(GRUB_SETTINGS.to_owned(), text(root, GRUB_SETTINGS)?)],
        // grubby keeps them in the entries, and in the file for new ones.
        Some(Loader::Grubby | Loader::Entries | Loader::KernelInstall) => {
            let paths = entries(root)?.into_iter().chain([CMDLINE.to_owned()]);
            paths
                .map(|path| Ok((path.clone(), text(root, &path)?)))
                .collect::<Result<_, SystemError>>()?
        }
        None => return Ok(None),
    };
    Ok(Some(serde_json::to_string(&kept).expect("text is JSON")))
}

/// Returns true if the menu of the boot loader has this argument, or is not known.
pub(crate) fn boots_with(root: &Root, argument: &str) -> Result<bool, SystemError> {
    let menu = match detect(root)? {
        Some(Loader::Grub) => text(root, GRUB_CONFIG)?,
        Some(Loader::Entries) => {
            let texts = entries(root)?.into_iter().map(|path| text(root, &path));
            texts.collect::<Result<_, _>>()?
        }
        Some(Loader::Grubby | Loader::KernelInstall) | None => String::new(),
    };
    let is_command_line = |line: &&str| line.starts_with("linux") || line.starts_with("options");
    let mut lines = menu.lines().map(str::trim_start).filter(is_command_line).peekable();
    let is_unknown = lines.peek().is_none();
    Ok(is_unknown || lines.any(|line| words(&[line.to_owned()]).iter().any(|it| it == argument)))
}

/// Restores the settings that [`staged`] returned.
pub(crate) fn restage(
    root: &Root,
    runner: &dyn CommandRunner,
    before: &str,
) -> Result<Restored, SystemError> {
    let kept: Vec<(String, String)> = serde_json::from_str(before).map_err(|error| {
        SystemError::Command { command: "restage".to_owned(), fault: error.to_string() }
    })?;
    for (path, before) in &kept {
        if text(root, path)? == *before {
            continue;
        }
        if before.is_empty() {
            root.remove(path)?;
        } else {
            write(root, path, before)?;
        }
    }
    // Always: a crash may have happened between the write and this command.
    match detect(root)? {
        Some(Loader::Grub) => write_grub_config(root, runner)?,
        Some(Loader::KernelInstall) => build_images(root, runner)?,
        Some(Loader::Grubby | Loader::Entries) | None => {}
    }
    Ok(Restored::Done)
}

/// Builds the settings file, with the arguments of the config only.
fn settings(add: &[String]) -> String {
    if add.is_empty() {
        return String::new();
    }
    // Read by a shell: characters with a special meaning are quoted.
    let words: Vec<String> = add
        .iter()
        .map(|word| {
            word.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`")
        })
        .collect();
    format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n", words.join(" "))
}

fn grub(root: &Root, runner: &dyn CommandRunner, wanted: &str) -> Result<(), SystemError> {
    if wanted.is_empty() {
        root.remove(GRUB_SETTINGS)?;
    } else if text(root, GRUB_SETTINGS)? != wanted {
        root.write(GRUB_SETTINGS, wanted.as_bytes(), 0o644)?;
    }
    // Always: a crash may have happened between the write and this command.
    write_grub_config(root, runner)
}

/// Generates the configuration of GRUB anew.
///
/// `update-grub` calls `grub-mkconfig`, which copies its result over the old file: a power cut in
/// between leaves a machine that does not boot. Therefore the result is written beside the old file,
/// synced, and renamed.
fn write_grub_config(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    let old = root.stat(GRUB_CONFIG)?.filter(crate::root::Stat::is_file);
    let (Some(old), true) = (old, root.exists(GRUB_MKCONFIG)?) else {
        runner.run(&[UPDATE_GRUB])?;
        return sync_boot(root);
    };
    root.remove(NEW_GRUB_CONFIG)?;
    runner.run(&[GRUB_MKCONFIG, "-o", NEW_GRUB_CONFIG])?;
    if root.stat(NEW_GRUB_CONFIG)?.is_none() {
        return Err(SystemError::Command {
            command: format!("{GRUB_MKCONFIG} -o {NEW_GRUB_CONFIG}"),
            fault: "it wrote no file".to_owned(),
        });
    }
    root.set_owner(NEW_GRUB_CONFIG, old.owner)?;
    root.set_mode(NEW_GRUB_CONFIG, old.mode & 0o7777)?;
    root.rename(NEW_GRUB_CONFIG, GRUB_CONFIG)?;
    write_journal_back(root, runner)
}

/// Writes the journal of a separate `/boot` back to its file system.
///
/// GRUB reads files without the changes that only the journal has: after a power cut it would read the
/// previous menu. A file system that cannot be frozen, such as FAT, has no journal. `/boot` in the root
/// stays as it is: nothing could run while the root is frozen.
fn write_journal_back(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    if !root.exists(FSFREEZE)? {
        return Ok(());
    }
    let thaw = "fsfreeze --unfreeze /boot 2>/dev/null";
    let script = format!(
        "if mountpoint -q /boot; then fsfreeze --freeze /boot 2>/dev/null; {thaw} || {thaw} || true; fi"
    );
    runner.run(&["/bin/sh", "-c", &script]).map(drop)
}

/// Makes durable all that a tool of the machine may have written for the boot loader.
fn sync_boot(root: &Root) -> Result<(), SystemError> {
    let files = entries(root)?;
    let fixed = [GRUB_CONFIG, GRUB_ENVIRONMENT, CMDLINE, "/boot/grub", "/boot/grub2"];
    for path in files.iter().map(String::as_str).chain(fixed).chain(ENTRIES).chain(KERNEL_IMAGES) {
        // A link is not followed; its target is one of the others.
        if root.stat(path)?.is_some_and(|found| found.is_file() || found.is_directory()) {
            root.sync(path)?;
        }
    }
    Ok(())
}

fn grubby(
    root: &Root,
    runner: &dyn CommandRunner,
    remove: &[String],
    add: &[String],
) -> Result<(), SystemError> {
    let (gone, new) = (remove.join(" "), add.join(" "));
    let (gone, new) = (format!("--remove-args={gone}"), format!("--args={new}"));
    let mut command = vec![GRUBBY, "--update-kernel=ALL"];
    if !remove.is_empty() {
        command.push(&gone);
    }
    if !add.is_empty() {
        command.push(&new);
    }
    runner.run(&command)?;
    sync_boot(root)
}

/// Builds all kernel images anew, with the arguments for new ones.
fn build_images(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    runner.run(&[KERNEL_INSTALL, "add-all"])?;
    for folder in KERNEL_IMAGES {
        for name in root.list(folder)? {
            root.sync(&format!("{folder}/{name}"))?;
        }
    }
    sync_boot(root)
}

/// Returns a command line with these changes.
fn changed(line: &str, remove: &[String], add: &[String]) -> String {
    let mut present = words(&[line.to_owned()]);
    present.retain(|word| !remove.contains(word) && !add.contains(word));
    present.extend(add.iter().cloned());
    present.join(" ")
}

fn edit_entries(root: &Root, remove: &[String], add: &[String]) -> Result<(), SystemError> {
    for path in entries(root)? {
        let before = text(root, &path)?;
        let edit = |line: &str| match line.split_once(char::is_whitespace) {
            Some(("options", rest)) => format!("options {}\n", changed(rest, remove, add)),
            _ => format!("{line}\n"),
        };
        let after: String = before.lines().map(edit).collect();
        if after != before {
            write(root, &path, &after)?;
        }
    }
    edit_cmdline(root, remove, add)
}

/// Edits the arguments of new entries and images, if the machine has a file with them.
fn edit_cmdline(root: &Root, remove: &[String], add: &[String]) -> Result<(), SystemError> {
    if root.exists(CMDLINE)? {
        let before = text(root, CMDLINE)?;
        let after = format!("{}\n", changed(before.trim(), remove, add));
        if after != before {
            write(root, CMDLINE, &after)?;
        }
    }
    Ok(())
}

/// Lists boot loader entries that have arguments.
fn entries(root: &Root) -> Result<Vec<String>, SystemError> {
    let mut found = Vec::new();
    for folder in ENTRIES {
        for name in root.list(folder)? {
            let path = format!("{folder}/{name}");
            let is_entry = name.strip_suffix(".conf").is_some();
            if is_entry && text(root, &path)?.lines().any(|line| line.starts_with("options")) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn text(root: &Root, path: &str) -> Result<String, SystemError> {
    let bytes = root.read(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(root: &Root, path: &str, text: &str) -> Result<(), SystemError> {
    let mode = root.stat(path)?.map_or(0o644, |stat| stat.mode & 0o7777);
    Ok(root.write(path, text.as_bytes(), mode)?)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rustix::io::Errno;

    use super::*;
    use crate::fault::{Fault, Faults};

    #[derive(Default)]
    struct Tools(Mutex<Vec<String>>);

    impl CommandRunner for Tools {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            self.0.lock().unwrap().push(command.join(" "));
            Ok(String::new())
        }
    }

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for (path, text) in files {
            root.write(path, text.as_bytes(), 0o644).unwrap();
        }
        (folder, root)
    }

    // covers: C129
    #[test]
    fn grub_gets_a_settings_file() {
        let (_folder, root) = machine(&[(UPDATE_GRUB, ""), ("/etc/default/grub.d/init.cfg", "")]);
        let tools = Tools::default();
        let before = staged(&root).unwrap().unwrap();
        stage(&root, &tools, &[], &list(&["nosmt", "a=\"b c\"", "d=$e"])).unwrap();
        assert_eq!(
            text(&root, GRUB_SETTINGS).unwrap(),
            "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX nosmt a=\\\"b c\\\" d=\\$e\"\n"
        );
        stage(&root, &tools, &list(&["nosmt"]), &list(&["quiet"])).unwrap();
        assert!(text(&root, GRUB_SETTINGS).unwrap().ends_with(" quiet\"\n"));
        restage(&root, &tools, &before).unwrap();
        assert!(!root.exists(GRUB_SETTINGS).unwrap());
        assert_eq!(*tools.0.lock().unwrap(), [UPDATE_GRUB; 3]);
    }

    /// A grub-mkconfig that writes the settings into its output.
    struct Mkconfig(Root);

    impl CommandRunner for Mkconfig {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            if let ["/bin/sh", "-c", script] = command {
                let menu = text(&self.0, GRUB_CONFIG)?;
                assert!(script.contains("--freeze /boot") && menu != "old", "{script}: {menu}");
                return Ok(String::new());
            }
            let [GRUB_MKCONFIG, "-o", output] = command else { panic!("{command:?}") };
            assert_ne!(*output, GRUB_CONFIG, "it would be rewritten in place");
            let settings = text(&self.0, GRUB_SETTINGS)?;
            if settings.contains("fail") {
                self.0.write(output, b"half", 0o600)?;
                let fault = "exit status 1".to_owned();
                return Err(SystemError::Command { command: command.join(" "), fault });
            }
            self.0.write(output, settings.as_bytes(), 0o600)?;
            Ok(String::new())
        }
    }

    // covers: C129
    #[test]
    fn the_configuration_of_grub_is_replaced_and_never_rewritten_in_place() {
        let (_folder, root) = machine(&[
            (UPDATE_GRUB, ""),
            (GRUB_MKCONFIG, ""),
            (FSFREEZE, ""),
            ("/etc/default/grub.d/init.cfg", ""),
            (GRUB_CONFIG, "old"),
            (NEW_GRUB_CONFIG, "left by a crash"),
        ]);
        root.set_mode(GRUB_CONFIG, 0o444).unwrap();
        let tools = Mkconfig(root.try_clone().unwrap());
        let before = staged(&root).unwrap().unwrap();
        assert!(stage(&root, &tools, &[], &list(&["fail"])).is_err());
        assert_eq!(text(&root, GRUB_CONFIG).unwrap(), "old", "nothing is half done");
        stage(&root, &tools, &[], &list(&["nosmt"])).unwrap();
        assert!(text(&root, GRUB_CONFIG).unwrap().contains("nosmt"));
        assert_eq!(root.stat(GRUB_CONFIG).unwrap().unwrap().mode & 0o7777, 0o444);
        assert!(!root.exists(NEW_GRUB_CONFIG).unwrap());
        restage(&root, &tools, &before).unwrap();
        assert_eq!(text(&root, GRUB_CONFIG).unwrap(), "");
    }

    #[test]
    fn a_restore_after_a_crash_writes_the_menu_again() {
        let (_folder, root) = machine(&[(UPDATE_GRUB, ""), ("/etc/default/grub.d/init.cfg", "")]);
        let tools = Tools::default();
        let before = staged(&root).unwrap().unwrap();
        stage(&root, &tools, &[], &list(&["nosmt"])).unwrap();
        // The crash came after the settings were restored and before the menu was.
        root.remove(GRUB_SETTINGS).unwrap();
        restage(&root, &tools, &before).unwrap();
        assert_eq!(*tools.0.lock().unwrap(), [UPDATE_GRUB; 2]);
    }

    #[test]
    fn grubby_gets_a_command() {
        let (_folder, root) = machine(&[(GRUBBY, "")]);
        let tools = Tools::default();
        stage(&root, &tools, &list(&["a b"]), &list(&["c"])).unwrap();
        assert_eq!(
            *tools.0.lock().unwrap(),
            ["/usr/sbin/grubby --update-kernel=ALL --remove-args=a b --args=c"]
        );
    }

    #[test]
    fn entries_are_edited_once_however_often_it_is_repeated() {
        let entry = "/boot/loader/entries/a.conf";
        let (_folder, root) = machine(&[
            (entry, "title A\noptions root=/dev/x quiet\nlinux /vmlinuz\n"),
            ("/boot/loader/entries/readme.txt", "options x\n"),
            (CMDLINE, "root=/dev/x quiet\n"),
            ("/efi/loader/entries/b.conf", "options root=/dev/x quiet\n"),
        ]);
        let tools = Tools::default();
        let before = staged(&root).unwrap().unwrap();
        for _ in 0..2 {
            stage(&root, &tools, &list(&["quiet"]), &list(&["nosmt"])).unwrap();
            let want = "title A\noptions root=/dev/x nosmt\nlinux /vmlinuz\n";
            assert_eq!(text(&root, entry).unwrap(), want);
            assert_eq!(text(&root, CMDLINE).unwrap(), "root=/dev/x nosmt\n");
            let other = text(&root, "/efi/loader/entries/b.conf").unwrap();
            assert_eq!(other, "options root=/dev/x nosmt\n");
        }
        assert_eq!(restage(&root, &tools, &before).unwrap(), Restored::Done);
        assert_eq!(text(&root, CMDLINE).unwrap(), "root=/dev/x quiet\n");
        assert!(tools.0.lock().unwrap().is_empty());
    }

    // covers: C129
    #[test]
    fn unified_kernel_images_are_built_anew() {
        let image = "/efi/EFI/Linux/debian.efi";
        let (_folder, root) =
            machine(&[(CMDLINE, "root=/dev/x quiet\n"), (KERNEL_INSTALL, ""), (image, "")]);
        let tools = Tools::default();
        let before = staged(&root).unwrap().unwrap();
        stage(&root, &tools, &list(&["quiet"]), &list(&["nosmt"])).unwrap();
        assert_eq!(text(&root, CMDLINE).unwrap(), "root=/dev/x nosmt\n");
        restage(&root, &tools, &before).unwrap();
        assert_eq!(text(&root, CMDLINE).unwrap(), "root=/dev/x quiet\n");
        assert_eq!(*tools.0.lock().unwrap(), ["/usr/bin/kernel-install add-all"; 2]);
    }

    /// Returns the changes of the disk that follow the call of a tool of the machine, when an argument is
    /// staged.
    fn changes_after_the_tool(files: &[(&str, &str)]) -> Vec<String> {
        let mut found = Vec::new();
        for number in 1.. {
            let (_folder, root) = machine(files);
            let faults = Arc::new(Faults::at(number, Fault::Once(Errno::IO)));
            let (root, tools) = (root.with_faults(faults.clone()), Tools::default());
            drop(stage(&root, &tools, &[], &list(&["nosmt"])));
            let Some(failed) = faults.failed() else { break };
            if !tools.0.lock().unwrap().is_empty() {
                found.push(failed);
            }
        }
        found
    }

    // covers: C129
    #[test]
    fn the_results_of_tools_are_synced() {
        let grub = [(UPDATE_GRUB, ""), ("/etc/default/grub.d/init.cfg", ""), (GRUB_CONFIG, "menu")];
        let entry = [(GRUBBY, ""), ("/boot/loader/entries/a.conf", "options quiet\n")];
        let image = [(CMDLINE, "quiet\n"), (KERNEL_INSTALL, ""), ("/efi/EFI/Linux/a.efi", "")];
        for (files, synced) in [
            (&grub[..], &["grub.cfg", "grub"][..]),
            (&entry, &["a.conf", "entries"]),
            (&image, &["a.efi", "Linux"]),
        ] {
            let changes = changes_after_the_tool(files);
            for name in synced {
                let sync = format!("set owner or mode of {name}");
                assert!(changes.contains(&sync), "{name}: {changes:?}");
            }
        }
    }

    #[test]
    fn the_menu_tells_the_arguments_of_the_next_boot() {
        let menu =
            "set timeout=0\nmenuentry 'a' {\n\tlinux /vmlinuz root=/dev/x nosmt a=\"b c\"\n}\n";
        let (_folder, root) = machine(&[
            (UPDATE_GRUB, ""),
            ("/etc/default/grub.d/init.cfg", ""),
            (GRUB_CONFIG, menu),
        ]);
        let has = |argument: &str| boots_with(&root, argument).unwrap();
        assert!(has("nosmt") && has("a=\"b c\"") && !has("quiet") && !has("timeout=0"));
        root.write(GRUB_CONFIG, b"", 0o644).unwrap();
        assert!(has("quiet"), "the menu is not known");
        let (_folder, root) =
            machine(&[("/boot/loader/entries/a.conf", "title A\noptions nosmt\nlinux /vmlinuz\n")]);
        assert!(boots_with(&root, "nosmt").unwrap() && !boots_with(&root, "quiet").unwrap());
    }

    // covers: C129
    #[test]
    fn the_loader_that_booted_the_machine_is_preferred() {
        let (_folder, root) = machine(&[
            (UPDATE_GRUB, ""),
            ("/etc/default/grub.d/init.cfg", ""),
            ("/boot/efi/loader/entries/a.conf", "options quiet\n"),
        ]);
        assert_eq!(detect(&root).unwrap(), Some(Loader::Grub));
        let name = "systemd-boot 252.39";
        let info: Vec<u8> =
            [6, 0, 0, 0].into_iter().chain(name.bytes().flat_map(|it| [it, 0])).collect();
        root.write(LOADER_INFO, &info, 0o644).unwrap();
        assert_eq!(detect(&root).unwrap(), Some(Loader::Entries));
        root.remove("/boot/efi/loader/entries/a.conf").unwrap();
        assert_eq!(detect(&root).unwrap(), Some(Loader::Grub), "no entry is known");
    }

    #[test]
    fn an_unknown_loader_is_refused() {
        let (_folder, root) = machine(&[]);
        let error = stage(&root, &Tools::default(), &[], &list(&["nosmt"])).unwrap_err();
        assert!(
            error.to_string().contains("cannot change kernel arguments (-[] +[nosmt])"),
            "{error}"
        );
        assert_eq!(staged(&root).unwrap(), None);
    }
}
