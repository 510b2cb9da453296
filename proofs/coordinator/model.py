"""`coordinator`, as far as exclusion goes: `crates/protocols/src/coordinator`.

Who is served before whom is not here: the manager may serve anybody who fits. The protocol assumes that every message
arrives once; exclusion does not need that.
"""

from kit.language import both, forall, implies
from kit.world import World


def model(without=()):
    w = World("coordinator", without)
    m = w.model
    User, Request, Claim, Unit = w.User, w.Request, w.Claim, w.Unit
    quest, asked = w.quest, w.asked

    # --- The user (user.rs).
    granted = m.relation("granted", Request)
    ever = m.relation("ever", Request)  # It was granted at some time; nobody keeps that.
    told = m.function("told", Claim, to=Unit, matters=lambda c: granted(w.of(c)))

    # --- The manager (manager.rs).
    waiting = m.relation("waiting", Request)
    held = m.relation("held", Request)  # Manager::holders
    unit = m.function("unit", Claim, to=Unit, matters=lambda c: held(w.of(c)))  # ... and their units
    early = m.relation("early", Request)  # EarlyReleases

    # --- What is under way.
    wanted = m.relation("wanted", Request)  # Ask
    released = m.relation("released", Request)  # Release
    yes = m.relation("yes", Request)  # Grant
    yes_unit = m.relation("yes_unit", Claim, Unit)  # ... and its units

    in_hand = lambda c: held(w.of(c))

    @m.step("User::step: Call::Ask")
    def ask(do, r: Request):
        w.may_ask(do, r)
        do.insert(wanted, r)

    @m.step("User::on_grant")
    def on_grant(do, r: Request):
        do.when(quest(r), yes(r))
        do.when(~granted(r), rule="once")
        do.choose(told, lambda c: w.of(c) == r, lambda new: [
            forall(lambda c=Claim: implies(w.of(c) == r, yes_unit(c, new(c))))])
        do.insert(granted, r)
        do.insert(ever, r)

    @m.step("User::end")
    def end(do, r: Request):
        do.when(quest(r))
        do.remove(quest, r)
        do.remove(granted, r)
        do.insert(released, r)

    w.crash_step(granted)

    @m.step("Manager::on_ask")
    def on_ask(do, r: Request):
        do.when(wanted(r), ~early(r), ~waiting(r), ~held(r))
        do.insert(waiting, r)

    @m.step("Manager::on_ask: its release came first")
    def on_late_ask(do, r: Request):
        do.when(wanted(r), early(r))
        do.remove(early, r)

    @m.step("Manager::scan, Manager::hold, Stock::pick")
    def hold(do, r: Request):
        do.when(waiting(r))
        mine = lambda c: w.of(c) == r
        conditions = {
            "room": lambda new: forall(lambda c=Claim, d=Claim: implies(both(mine(c), in_hand(d)), new(c) != unit(d))),
            "apart": lambda new: forall(lambda c=Claim, d=Claim: implies(
                both(mine(c), mine(d), c != d), new(c) != new(d))),
            "there": lambda new: forall(lambda c=Claim: implies(mine(c), w.pool(new(c)) == w.wants(c))),
            "named": lambda new: forall(lambda c=Claim, x=Unit: implies(both(mine(c), w.names(c, x)), new(c) == x)),
        }
        kept = [condition for rule, condition in conditions.items() if do.keeps(rule)]
        do.choose(unit, mine, lambda new: [condition(new) for condition in kept])
        do.remove(waiting, r)
        do.insert(held, r)

    @m.step("Manager::hold: Grant")
    def say_yes(do, r: Request):
        do.when(held(r))
        do.insert(yes, r)
        do.insert_where(yes_unit, lambda c, x: both(w.of(c) == r, x == unit(c)))

    def forget(do, which):
        """`Manager::forget`."""
        do.remove_where(waiting, which)
        do.remove_where(held, which)

    @m.step("Manager::on_release")
    def on_release(do, r: Request):
        do.when(released(r))
        session = do.keeps("session")
        forget(do, lambda s: s == r if session else w.user(s) == w.user(r))

    @m.step("Manager::on_release: before its request")
    def on_early_release(do, r: Request):
        do.when(released(r), ~waiting(r), ~held(r))
        do.insert(early, r)

    @m.step("Manager::on_gone, of a user")
    def departed(do, u: User):
        do.when(w.retired(u), w.stopped(u), rule="Departure")
        theirs = lambda r: w.user(r) == u
        forget(do, theirs)
        do.remove_where(early, theirs)

    @m.step("Manager::on_gone, of a home")
    def home_departed(do, h: w.Home):
        do.when(forall(lambda u=User: implies(both(w.home_of(u) == h, w.begun(u)), both(w.retired(u), w.stopped(u)))),
                rule="Departure: of a home")
        theirs = lambda r: w.home_of(w.user(r)) == h
        forget(do, theirs)
        do.remove_where(early, theirs)

    w.lose_steps(wanted, released, yes, yes_unit)

    m.always("granted are quests", lambda r=Request: implies(granted(r), quest(r)))
    m.always("granted once", lambda r=Request: implies(both(ever(r), quest(r)), granted(r)))
    m.always("ever were asked for", lambda r=Request: implies(ever(r), asked(r)))

    # Nothing is heard of a request that was not asked for.
    m.always("asks were asked for", lambda r=Request: implies(wanted(r), asked(r)))
    m.always("releases were asked for", lambda r=Request: implies(released(r), asked(r)))
    m.always("waiting were asked for", lambda r=Request: implies(waiting(r), asked(r)))
    m.always("held were asked for", lambda r=Request: implies(held(r), asked(r)))
    m.always("answers were asked for", lambda r=Request: implies(yes(r), asked(r)))
    m.always("units were asked for", lambda c=Claim, x=Unit: implies(yes_unit(c, x), asked(w.of(c))))
    m.always("a release ends a quest", lambda r=Request: implies(released(r), ~quest(r)))

    # What was said of a request under way is still true.
    m.always("C3", lambda r=Request: implies(both(yes(r), quest(r)), held(r)))
    m.always("C3 of units", lambda c=Claim, x=Unit: implies(
        both(yes_unit(c, x), quest(w.of(c))), both(in_hand(c), unit(c) == x)))
    m.always("C3 at the user", lambda r=Request: implies(granted(r), held(r)))
    m.always("C3 of units at the user", lambda c=Claim: implies(granted(w.of(c)), told(c) == unit(c)))

    # C1: at the manager.
    m.always("C1", lambda c=Claim, d=Claim: implies(both(in_hand(c), in_hand(d), c != d), unit(c) != unit(d)))
    m.always("nobody waits for what it holds", lambda r=Request: implies(waiting(r), ~held(r)))
    m.always("units of the pool", lambda c=Claim: implies(in_hand(c), w.pool(unit(c)) == w.wants(c)))
    m.always("units that were named", lambda c=Claim, x=Unit: implies(both(in_hand(c), w.names(c, x)), unit(c) == x))

    w.exclusion(granted, told)
    m.theorem("nothing is granted twice", lambda r: ~ever(r), step="on_grant")
    return m
