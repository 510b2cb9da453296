"""`house`, as far as exclusion goes: `crates/protocols/src/house`.

Rounds, floors, marks, places and patience decide when a stance is taken and who is served. None of that is
here: a user that is not granted may take a later stance at any time, and a manager may serve anybody who fits.
What is left is who holds what, and who knows.
"""

from kit.language import both, either, exists, forall, implies
from kit.world import World


def model(without=()):
    return build("house", without).model


def build(name, without):
    w = World(name, without, lanes=True)
    m = w.model
    User, Request, Claim, Unit, Manager = w.User, w.Request, w.Claim, w.Unit, w.Manager
    quest, asked = w.quest, w.asked
    Stance = m.sort("Stance")
    less = m.order("less", Stance)
    first = m.fixed_relation("first", Stance)
    m.axiom(lambda n=Stance, k=Stance: implies(first(n), ~less(k, n)))

    # --- The user: `Quest` and its `Part`s (user.rs).
    granted = m.relation("granted", Request)  # Phase::Granted
    ever = m.relation("ever", Request)  # It was granted at some time; nobody keeps that.
    stance = m.function("stance", Request, Manager, to=Stance, matters=lambda r, k: quest(r))  # Part::n
    counted = m.relation("counted", Request, Manager)  # Part::held
    told = m.function("told", Claim, to=Unit,  # Part::units
                      matters=lambda c: counted(w.of(c), w.at_manager(c)))

    # --- The manager: `Entry` (entry.rs) and `Lanes` (lanes.rs).
    entry = m.relation("entry", Manager, Request)
    at = m.function("at", Manager, Request, to=Stance, matters=lambda k, r: entry(k, r))  # Entry::n
    held = m.relation("held", Manager, Request)  # Entry::held
    unit = m.function("unit", Claim, to=Unit,  # Entry::units
                      matters=lambda c: held(w.at_manager(c), w.of(c)))
    choosing = m.relation("choosing", Manager, Request)  # Manager::choosing
    over = m.relation("over", Manager, Request)  # State::Over or State::Gone

    # --- What is under way: `ToManager`, and of `ToUser` what matters.
    tried = m.relation("tried", Manager, Request)  # Try, the stance number 0
    queued = m.relation("queued", Manager, Request, Stance)  # Queue
    released = m.relation("released", Manager, Request)  # Release
    yes = m.relation("yes", Manager, Request, Stance)  # Yes
    yes_unit = m.relation("yes_unit", Claim, Stance, Unit)  # ... and its units
    asked_back = m.relation("asked_back", Manager, Request, Stance)  # Yield

    has_part = w.has_part
    in_hand = lambda c: held(w.at_manager(c), w.of(c))
    up_to = lambda n, k: either(less(n, k), n == k)

    # ------------------------------------------------------------------ users

    @m.step("User::ask")
    def ask(do, r: Request, zero: Stance):
        w.may_ask(do, r)
        do.when(first(zero))
        do.insert_where(tried, lambda k, s: both(s == r, has_part(r, k)))
        do.choose(stance, lambda s, k: s == r, lambda new: [forall(lambda k=Manager: new(r, k) == zero)])
        do.remove_where(counted, lambda s, k: s == r)

    @m.step("Quest::on_yes")
    def on_yes(do, r: Request, k: Manager, n: Stance):
        do.when(quest(r), yes(k, r, n), ~granted(r))
        do.when(n == stance(r, k), rule="latest")
        do.insert(counted, r, k)
        do.choose(told, lambda c: w.part(c, r, k), lambda new: [
            forall(lambda c=Claim: implies(w.part(c, r, k), yes_unit(c, n, new(c))))])

    @m.step("Quest::settle")
    def grant(do, r: Request):
        do.when(quest(r), ~granted(r))
        do.when(forall(lambda c=Claim: implies(w.of(c) == r, counted(r, w.at_manager(c)))), rule="whole")
        do.insert(granted, r)
        do.insert(ever, r)

    def queue(do, r, k, n):
        """`Quest::queue`: a later stance, which ends whatever is held there."""
        do.when(less(stance(r, k), n))
        do.set(stance, (r, k), n)
        do.remove(counted, r, k, rule="let-go")
        do.insert(queued, k, r, n)

    @m.step("Quest::choose, Quest::park_elsewhere")
    def restance(do, r: Request, k: Manager, n: Stance):
        do.when(quest(r), ~granted(r), has_part(r, k))
        queue(do, r, k, n)

    @m.step("Quest::on_yield")
    def on_yield(do, r: Request, k: Manager, n: Stance, back: Stance):
        do.when(quest(r), has_part(r, k), asked_back(k, r, back), back == stance(r, k))
        do.when(~granted(r), rule="firm")
        queue(do, r, k, n)

    @m.step("Quest::resend")
    def resend(do, r: Request, k: Manager):
        do.when(quest(r), has_part(r, k))
        do.insert_where(tried, lambda j, s: both(j == k, s == r, first(stance(r, k))))
        do.insert_where(queued, lambda j, s, n: both(j == k, s == r, n == stance(r, k), ~first(n)))

    @m.step("User::give_back")
    def give_back(do, r: Request):
        do.when(quest(r))
        do.remove(quest, r)
        do.remove(granted, r)
        do.remove_where(counted, lambda s, k: s == r)
        do.insert_where(released, lambda k, s: both(s == r, has_part(r, k)))

    @m.step("User::on_resend")
    def release_again(do, r: Request, k: Manager):
        do.when(asked(r), has_part(r, k), ~w.stopped(w.user(r)))
        do.when(~quest(r), rule="released-only")
        do.insert(released, k, r)

    w.crash_step(granted, counted)

    # --------------------------------------------------------------- managers

    def forget(do, which, rule=None):
        """`Manager::remove`, of all these."""
        for relation in (entry, held, choosing):
            do.remove_where(relation, which, rule=rule)

    def hears(do, k, r):
        """`Manager::hears`: nothing is heard of what is over; what is earlier in the lane is over."""
        do.when(~over(k, r), rule="ended")
        do.when(forall(lambda s=Request: implies(w.follows(r, s), over(k, s))))

    spoke = lambda k, r: either(
        tried(k, r), released(k, r), exists(lambda n=Stance: queued(k, r, n)))

    @m.step("Manager::hears, Lanes::begin")
    def end_earlier(do, k: Manager, r: Request):
        do.when(spoke(k, r), ~over(k, r))
        earlier = lambda j, s: both(j == k, w.follows(r, s))
        do.insert_where(over, earlier)
        forget(do, earlier, rule="implied")

    @m.step("Manager::on_try")
    def on_try(do, k: Manager, r: Request, zero: Stance):
        do.when(tried(k, r), ~entry(k, r), first(zero))
        hears(do, k, r)
        do.insert(entry, k, r)
        do.set(at, (k, r), zero)
        do.remove(choosing, k, r)

    @m.step("Manager::on_try: No")
    def say_no(do, k: Manager, r: Request):
        do.when(tried(k, r), ~entry(k, r))
        hears(do, k, r)
        do.insert(choosing, k, r)

    @m.step("Manager::on_queue")
    def on_queue(do, k: Manager, r: Request, n: Stance):
        do.when(queued(k, r, n))
        hears(do, k, r)
        do.when(implies(entry(k, r), less(at(k, r), n)), rule="stance")
        do.insert(entry, k, r)
        do.set(at, (k, r), n)
        do.remove(held, k, r)
        do.remove(choosing, k, r)

    @m.step("Manager::hold, Manager::take, Stock::pick")
    def hold(do, k: Manager, r: Request):
        do.when(entry(k, r), ~held(k, r))
        mine = lambda c: w.part(c, r, k)
        free = lambda new: forall(lambda c=Claim, d=Claim: implies(both(mine(c), in_hand(d)), new(c) != unit(d)))
        apart = lambda new: forall(lambda c=Claim, d=Claim: implies(both(mine(c), mine(d), c != d), new(c) != new(d)))
        there = lambda new: forall(lambda c=Claim: implies(mine(c), w.pool(new(c)) == w.wants(c)))
        named = lambda new: forall(lambda c=Claim, x=Unit: implies(both(mine(c), w.names(c, x)), new(c) == x))
        conditions = {"free": free, "apart": apart, "there": there, "named": named}
        kept = [condition for rule, condition in conditions.items() if do.keeps(rule)]
        do.choose(unit, mine, lambda new: [condition(new) for condition in kept])
        do.insert(held, k, r)

    @m.step("Manager::hold, Manager::on_try, Manager::on_queue: Yes, perhaps again")
    def say_yes(do, k: Manager, r: Request):
        do.when(held(k, r))
        do.insert_where(yes, lambda j, s, n: both(j == k, s == r, n == at(k, r)))
        do.insert_where(yes_unit, lambda c, n, x: both(w.part(c, r, k), n == at(k, r), x == unit(c)))

    @m.step("Manager::ask_back")
    def ask_back(do, k: Manager, r: Request):
        do.when(held(k, r))
        do.insert_where(asked_back, lambda j, s, n: both(j == k, s == r, n == at(k, r)))

    @m.step("Manager::on_message: Release")
    def on_release(do, k: Manager, r: Request):
        do.when(released(k, r))
        hears(do, k, r)
        do.insert(over, k, r)
        forget(do, lambda j, s: both(j == k, s == r))

    @m.step("Manager::is_impossible")
    def refuse(do, k: Manager, r: Request, n: Stance):
        hears(do, k, r)
        do.when(either(both(tried(k, r), ~entry(k, r)), queued(k, r, n)))
        do.when(implies(entry(k, r), less(at(k, r), n)), rule="heard-before")
        do.insert(over, k, r)
        forget(do, lambda j, s: both(j == k, s == r))

    # ---------------------------------------------------------------- reports

    def ends_with(u):
        """`lanes::ends_with`: the requests of a user and of its predecessors."""
        of = lambda r: both(w.lane_of(r) == w.lane(u), either(w.user(r) == u, w.before(w.user(r), u)))
        return of

    def purge(do, k, u):
        """`Manager::on_gone`, `Lanes::end_user`."""
        ended = lambda j, r: both(j == k, ends_with(u)(r))
        do.insert_where(over, ended, rule="purge")
        forget(do, ended, rule="purge")

    @m.step("Manager::on_gone: Gone::Suspected")
    def suspected(do, k: Manager, u: User):
        do.when(w.begun(u), rule="Suspicion")
        do.when(forall(lambda r=Request: implies(w.user(r) == u, ~held(k, r))), rule="spare-holders")
        purge(do, k, u)

    @m.step("Manager::on_gone: Gone::Reclaimed")
    def reclaimed(do, k: Manager, u: User):
        do.when(w.begun(u), rule="Suspicion")
        do.when(w.retired(u), rule="Lapse")
        purge(do, k, u)

    @m.step("Manager::on_gone: Gone::Departed, of a user")
    def departed(do, k: Manager, u: User):
        do.when(w.begun(u), rule="Suspicion")
        do.when(w.retired(u), w.stopped(u), rule="Departure")
        purge(do, k, u)

    @m.step("Manager::on_gone: Gone::Departed, of a home")
    def home_departed(do, k: Manager, h: w.Home):
        theirs = lambda j, r: both(j == k, w.home_of(w.user(r)) == h)
        do.when(forall(lambda u=User: implies(both(w.home_of(u) == h, w.begun(u)), both(w.retired(u), w.stopped(u)))),
                rule="Departure: of a home")
        do.remove_where(over, theirs, rule="purge")
        forget(do, theirs, rule="purge")

    w.lose_steps(tried, queued, released, yes, yes_unit, asked_back)

    # -------------------------------------------------------------- invariant

    m.always("granted are quests", lambda r=Request: implies(granted(r), quest(r)))
    m.always("granted once", lambda r=Request: implies(both(ever(r), quest(r)), granted(r)))
    m.always("ever were asked for", lambda r=Request: implies(ever(r), asked(r)))

    # Nothing is heard of a request that was not asked for.
    m.always("tries were asked for", lambda k=Manager, r=Request: implies(tried(k, r), asked(r)))
    m.always("stances were asked for", lambda k=Manager, r=Request, n=Stance: implies(queued(k, r, n), asked(r)))
    m.always("releases were asked for", lambda k=Manager, r=Request: implies(released(k, r), asked(r)))
    m.always("entries were asked for", lambda k=Manager, r=Request: implies(entry(k, r), asked(r)))
    m.always("answers were asked for", lambda k=Manager, r=Request, n=Stance: implies(yes(k, r, n), asked(r)))
    m.always("units were asked for", lambda c=Claim, n=Stance, x=Unit: implies(yes_unit(c, n, x), asked(w.of(c))))
    m.always("a release ends a quest", lambda k=Manager, r=Request: implies(released(k, r), ~quest(r)))

    # No stance, entry or answer is ahead of the user.
    m.always("stances follow the user", lambda k=Manager, r=Request, n=Stance: implies(
        both(queued(k, r, n), quest(r)), up_to(n, stance(r, k))))
    m.always("entries follow the user", lambda k=Manager, r=Request: implies(
        both(entry(k, r), quest(r)), up_to(at(k, r), stance(r, k))))
    m.always("answers follow the user", lambda k=Manager, r=Request, n=Stance: implies(
        both(yes(k, r, n), quest(r)), up_to(n, stance(r, k))))
    m.always("units follow the user", lambda c=Claim, n=Stance, x=Unit: implies(
        both(yes_unit(c, n, x), quest(w.of(c))), up_to(n, stance(w.of(c), w.at_manager(c)))))

    # H2: what was said of the latest stance is still true.
    still = lambda k, r: both(held(k, r), at(k, r) == stance(r, k))
    m.always("H2", lambda k=Manager, r=Request, n=Stance: implies(
        both(yes(k, r, n), quest(r), n == stance(r, k)), still(k, r)))
    m.always("H2 of units", lambda c=Claim, n=Stance, x=Unit: implies(
        both(yes_unit(c, n, x), quest(w.of(c)), n == stance(w.of(c), w.at_manager(c))),
        both(still(w.at_manager(c), w.of(c)), unit(c) == x)))
    m.always("H2 at the user", lambda r=Request, k=Manager: implies(both(counted(r, k), quest(r)), still(k, r)))
    m.always("H2 of units at the user", lambda c=Claim: implies(
        both(counted(w.of(c), w.at_manager(c)), quest(w.of(c))), told(c) == unit(c)))
    m.always("granted hold everywhere", lambda c=Claim: implies(
        granted(w.of(c)), counted(w.of(c), w.at_manager(c))))

    # H1: at a manager.
    m.always("H1", lambda c=Claim, d=Claim: implies(both(in_hand(c), in_hand(d), c != d), unit(c) != unit(d)))
    m.always("held are entries", lambda k=Manager, r=Request: implies(held(k, r), entry(k, r)))
    m.always("units of the pool", lambda c=Claim: implies(in_hand(c), w.pool(unit(c)) == w.wants(c)))
    m.always("units that were named", lambda c=Claim, x=Unit: implies(both(in_hand(c), w.names(c, x)), unit(c) == x))

    w.exclusion(granted, told)
    m.theorem("nothing is granted twice", lambda r: ~ever(r), step="grant")
    return w
