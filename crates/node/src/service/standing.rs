//! How it stands with the other members, for people: for whom everybody here waits, and who is none of them any more.

use std::collections::BTreeMap;

use holdall_cell::books::Recovery;
use holdall_links::CellId;
use holdall_links::member::Member;
use holdall_wire::{Need, Refusal};

use super::Service;
use crate::cluster::behind::FOREVER;
use crate::cluster::number;

impl Service {
    /// Why nothing is granted here; none if something is.
    pub(super) fn why_nothing_is_granted(&self) -> Option<String> {
        self.awaited.told().or_else(|| self.awaited_members())
    }

    /// Who has yet to say what they hold here, and what is to be done about those who cannot.
    pub(super) fn awaited_members(&self) -> Option<String> {
        let Recovery { missing, until, .. } = self.books().ties().recovery();
        let running = self.cells.as_ref()?.running.as_ref().filter(|_| !missing.is_empty())?;
        let peers: BTreeMap<_, _> =
            running.links.peers().into_iter().map(|peer| (peer.id, peer.up)).collect();
        let until = until.filter(|until| *until < FOREVER);
        let members = running.links.members().into_iter();
        let awaited = members.filter(|(id, _)| missing.contains(&number(*id)));
        let awaited = awaited.map(|(id, member)| {
            let is_up = peers.get(&id).is_some_and(|up| *up);
            is_awaited(id, &member, is_up, until.is_none())
        });
        let awaited: Vec<_> = awaited.collect();
        let who = if awaited.is_empty() { "others".into() } else { awaited.join(", ") };
        let now = self.cell().now();
        let limit = until.map(|until| until.saturating_sub(now).div_ceil(1000));
        let limit = limit.map(|left| format!(", or {left} s are over")).unwrap_or_default();
        Some(format!(
            "this cell may have forgotten what it gave to others, and gives nothing to anybody before they have said what they hold: \
             {who}{limit}"
        ))
    }

    /// Whether something of this cell is among these.
    pub(super) fn needs_own(&self, needs: &[Need]) -> bool {
        let own = self.cells.as_ref().map(|cells| cells.name.as_str());
        needs.iter().any(|need| need.name.cell().is_none_or(|cell| Some(cell) == own))
    }

    /// Why what another cell guards cannot be had, or not any more: nobody talks to this one, or it does not to that one.
    pub(super) fn cut_off(&self, needs: &[Need]) -> Option<Refusal> {
        let cells = self.cells.as_ref()?;
        let links = &cells.running.as_ref()?.links;
        let own = links.own().name.as_str();
        let others = needs.iter().filter_map(|need| Some((need, need.name.cell()?)));
        let mut others = others.filter(|(_, cell)| *cell != own).peekable();
        if let Some((need, _)) = others.peek().filter(|_| links.is_removed()) {
            return Some(Refusal::Never(format!(
                "'{need}' cannot be had: this cell was removed from the cluster, and nobody talks to it any more; it can join again, \
                 under a new id (`holdall agent status` says how)"
            )));
        }
        let members = links.members();
        others.find_map(|(need, cell)| {
            let mut named = members.iter().filter(|(_, member)| member.name.as_str() == cell);
            let (id, member) = named.clone().find(|(_, it)| !it.removed).or_else(|| named.next())?;
            let why = match member.removed {
                true => format!("there is no cell '{cell}' any more: it was removed from the cluster"),
                false if cells.greeter.is_away(*id) => format!(
                    "the cell '{cell}' was forgotten (`holdall cluster forget`); it comes back in a new life: when its machine is restarted, \
                     or its agent is stopped and segment-* and snapshot-* in its data directory are moved away; if it is refused even then, \
                     the refusal says to which number `epoch` there is to be raised"
                ),
                false => return None,
            };
            Some(Refusal::Never(format!("'{need}' cannot be had: {why}")))
        })
    }
}

/// Who is awaited, and what is to be done if that one cannot say what it holds. Where it is not waited for without end, nobody is to be given
/// up for being cut off. Whoever was removed is said by its id: a living one may have its name by now.
fn is_awaited(id: CellId, member: &Member, is_up: bool, is_endless: bool) -> String {
    let name = &member.name;
    let forget =
        |whom: &str| format!("`holdall cluster forget {whom}` says that it holds nothing any more");
    if member.removed {
        let forget = forget(&id.to_string());
        return format!("'{name}' (it was removed, and cannot say it; {forget})");
    }
    match (is_up, is_endless) {
        (true, _) => format!("'{name}'"),
        (false, true) => format!("'{name}' (it cannot be reached; {})", forget(name.as_str())),
        (false, false) => format!("'{name}' (it cannot be reached)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab3(removed: bool) -> Member {
        let name = "lab3".parse().expect("a name");
        Member { removed, version: 1, since: 0, name, addresses: Vec::new(), signs: false }
    }

    /// Else an operator gives up who is only cut off, or a living one of the same name.
    #[test]
    fn nobody_is_to_be_forgotten_who_need_not_be_and_a_removed_one_is_said_by_its_id() {
        let id: CellId = "000000000000000000000000000000a3".parse().expect("an id");
        for is_endless in [false, true] {
            let told = is_awaited(id, &lab3(true), false, is_endless);
            assert!(told.contains(&format!("`holdall cluster forget {id}`")), "{told}");
            let told = is_awaited(id, &lab3(false), false, is_endless);
            assert_eq!(told.contains("`holdall cluster forget lab3`"), is_endless, "{told}");
            assert!(!is_awaited(id, &lab3(false), true, is_endless).contains("forget"));
        }
    }
}
