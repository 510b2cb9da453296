"""`ordered`, as far as exclusion and the order of rungs go: `crates/protocols/src/ordered`.

A manager may serve anybody in its queue who fits. The protocol assumes that every message arrives once;
exclusion does not need that. Each pool has a manager of its own, so a manager is named by its pool.
"""

from kit.language import both, exists, forall, implies
from kit.world import World


def model(without=()):
    w = World("ordered", without)
    m = w.model
    User, Request, Claim, Unit, Pool = w.User, w.Request, w.Claim, w.Unit, w.Pool
    quest, asked = w.quest, w.asked
    below = m.order("below", Pool)  # Ordered::rank

    # --- The user: `Climb` (user.rs).
    granted = m.relation("granted", Request)
    ever = m.relation("ever", Request)  # It was granted at some time; nobody keeps that.
    wanted = m.relation("wanted", Request, Pool)  # Climb::asked
    counted = m.relation("counted", Request, Pool)  # ladder[..held]
    told = m.function("told", Claim, to=Unit, matters=lambda c: counted(w.of(c), w.wants(c)))

    # --- The manager (manager.rs).
    waiting = m.relation("waiting", Pool, Request)  # Manager::queue
    held = m.relation("held", Pool, Request)  # Manager::holders
    unit = m.function("unit", Claim, to=Unit, matters=lambda c: held(w.wants(c), w.of(c)))
    early = m.relation("early", Pool, Request)  # EarlyReleases

    # --- What is under way.
    acquire = m.relation("acquire", Pool, Request)  # Acquire
    released = m.relation("released", Pool, Request)  # Release
    yes = m.relation("yes", Pool, Request)  # Held
    yes_unit = m.relation("yes_unit", Claim, Unit)  # ... and its units

    in_hand = lambda c: held(w.wants(c), w.of(c))
    rung = lambda c, r, p: both(w.of(c) == r, w.wants(c) == p)

    @m.step("User::ask")
    def ask(do, r: Request):
        w.may_ask(do, r)
        do.remove_where(wanted, lambda s, p: s == r)
        do.remove_where(counted, lambda s, p: s == r)

    @m.step("user::acquire_next")
    def climb(do, r: Request, p: Pool):
        do.when(quest(r), ~granted(r), ~wanted(r, p), exists(lambda c=Claim: rung(c, r, p)))
        do.when(forall(lambda q=Pool: implies(wanted(r, q), counted(r, q))))
        do.when(forall(lambda c=Claim: implies(both(w.of(c) == r, below(w.wants(c), p)), counted(r, w.wants(c)))),
                forall(lambda q=Pool: implies(counted(r, q), below(q, p))), rule="sorted")
        do.insert(wanted, r, p)
        do.insert(acquire, p, r)

    @m.step("User::on_held")
    def on_held(do, r: Request, p: Pool):
        do.when(quest(r), yes(p, r), wanted(r, p), ~counted(r, p))
        do.choose(told, lambda c: rung(c, r, p), lambda new: [
            forall(lambda c=Claim: implies(rung(c, r, p), yes_unit(c, new(c))))])
        do.insert(counted, r, p)

    @m.step("User::on_held: at the top")
    def grant(do, r: Request):
        do.when(quest(r), ~granted(r))
        do.when(forall(lambda c=Claim: implies(w.of(c) == r, counted(r, w.wants(c)))), rule="top")
        do.insert(granted, r)
        do.insert(ever, r)

    @m.step("User::end")
    def end(do, r: Request):
        do.when(quest(r))
        do.remove(quest, r)
        do.remove(granted, r)
        do.insert_where(released, lambda p, s: both(s == r, wanted(r, p)))
        do.remove_where(wanted, lambda s, p: s == r)
        do.remove_where(counted, lambda s, p: s == r)

    w.crash_step(granted, wanted, counted)

    @m.step("Manager::on_acquire")
    def on_acquire(do, p: Pool, r: Request):
        do.when(acquire(p, r), ~early(p, r), ~waiting(p, r), ~held(p, r))
        do.insert(waiting, p, r)

    @m.step("Manager::on_acquire: its release came first")
    def on_late_acquire(do, p: Pool, r: Request):
        do.when(acquire(p, r), early(p, r))
        do.remove(early, p, r)

    @m.step("Manager::serve, Manager::pick")
    def hold(do, p: Pool, r: Request):
        do.when(waiting(p, r))
        mine = lambda c: rung(c, r, p)
        conditions = {
            "whole": lambda new: forall(lambda c=Claim, d=Claim: implies(both(mine(c), in_hand(d)), new(c) != unit(d))),
            "apart": lambda new: forall(lambda c=Claim, d=Claim: implies(
                both(mine(c), mine(d), c != d), new(c) != new(d))),
            "there": lambda new: forall(lambda c=Claim: implies(mine(c), w.pool(new(c)) == w.wants(c))),
            "named": lambda new: forall(lambda c=Claim, x=Unit: implies(both(mine(c), w.names(c, x)), new(c) == x)),
        }
        kept = [condition for rule, condition in conditions.items() if do.keeps(rule)]
        do.choose(unit, mine, lambda new: [condition(new) for condition in kept])
        do.remove(waiting, p, r)
        do.insert(held, p, r)

    @m.step("Manager::serve: Held")
    def say_yes(do, p: Pool, r: Request):
        do.when(held(p, r))
        do.insert(yes, p, r)
        do.insert_where(yes_unit, lambda c, x: both(rung(c, r, p), x == unit(c)))

    def forget(do, which):
        """`Manager::give_back`, and out of the queue."""
        do.remove_where(waiting, which)
        do.remove_where(held, which)

    @m.step("Manager::on_release")
    def on_release(do, p: Pool, r: Request):
        do.when(released(p, r))
        forget(do, lambda q, s: both(q == p, s == r))

    @m.step("Manager::on_release: before its request")
    def on_early_release(do, p: Pool, r: Request):
        do.when(released(p, r), ~waiting(p, r), ~held(p, r))
        do.insert(early, p, r)

    @m.step("Manager::on_gone, of a user")
    def departed(do, p: Pool, u: User):
        do.when(w.retired(u), w.stopped(u), rule="Departure")
        theirs = lambda q, r: both(q == p, w.user(r) == u)
        forget(do, theirs)
        do.remove_where(early, theirs)

    @m.step("Manager::on_gone, of a home")
    def home_departed(do, p: Pool, h: w.Home):
        do.when(forall(lambda u=User: implies(both(w.home_of(u) == h, w.begun(u)), both(w.retired(u), w.stopped(u)))),
                rule="Departure: of a home")
        theirs = lambda q, r: both(q == p, w.home_of(w.user(r)) == h)
        forget(do, theirs)
        do.remove_where(early, theirs)

    w.lose_steps(acquire, released, yes, yes_unit)

    m.always("granted are quests", lambda r=Request: implies(granted(r), quest(r)))
    m.always("granted once", lambda r=Request: implies(both(ever(r), quest(r)), granted(r)))
    m.always("ever were asked for", lambda r=Request: implies(ever(r), asked(r)))

    # Nothing is heard of a request that was not asked for.
    m.always("rungs were asked for", lambda p=Pool, r=Request: implies(acquire(p, r), asked(r)))
    m.always("releases were asked for", lambda p=Pool, r=Request: implies(released(p, r), asked(r)))
    m.always("waiting were asked for", lambda p=Pool, r=Request: implies(waiting(p, r), asked(r)))
    m.always("held were asked for", lambda p=Pool, r=Request: implies(held(p, r), asked(r)))
    m.always("answers were asked for", lambda p=Pool, r=Request: implies(yes(p, r), asked(r)))
    m.always("units were asked for", lambda c=Claim, x=Unit: implies(yes_unit(c, x), asked(w.of(c))))
    m.always("a release ends a quest", lambda p=Pool, r=Request: implies(released(p, r), ~quest(r)))

    # What was said to a request under way is still true.
    m.always("O3", lambda p=Pool, r=Request: implies(both(yes(p, r), quest(r)), held(p, r)))
    m.always("O3 of units", lambda c=Claim, x=Unit: implies(
        both(yes_unit(c, x), quest(w.of(c))), both(in_hand(c), unit(c) == x)))
    m.always("O3 at the user", lambda r=Request, p=Pool: implies(both(counted(r, p), quest(r)), held(p, r)))
    m.always("O3 of units at the user", lambda c=Claim: implies(
        both(counted(w.of(c), w.wants(c)), quest(w.of(c))), told(c) == unit(c)))
    m.always("granted hold everywhere", lambda c=Claim: implies(granted(w.of(c)), counted(w.of(c), w.wants(c))))

    # O1: at a manager.
    m.always("O1", lambda c=Claim, d=Claim: implies(both(in_hand(c), in_hand(d), c != d), unit(c) != unit(d)))
    m.always("nobody waits for what it holds", lambda p=Pool, r=Request: implies(waiting(p, r), ~held(p, r)))
    m.always("units of the pool", lambda c=Claim: implies(in_hand(c), w.pool(unit(c)) == w.wants(c)))
    m.always("units that were named", lambda c=Claim, x=Unit: implies(both(in_hand(c), w.names(c, x)), unit(c) == x))

    # O2: a user waits only above all that it holds.
    m.always("O2", lambda r=Request, p=Pool, q=Pool: implies(
        both(wanted(r, p), ~counted(r, p), counted(r, q)), below(q, p)))
    m.always("O2: one rung at a time", lambda r=Request, p=Pool, q=Pool: implies(
        both(wanted(r, p), wanted(r, q), ~counted(r, p), ~counted(r, q)), p == q))

    w.exclusion(granted, told)
    m.theorem("nothing is granted twice", lambda r: ~ever(r), step="grant")
    return m
