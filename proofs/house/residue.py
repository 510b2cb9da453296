"""That `house` leaves nothing behind: whatever a manager still knows of a request that has ended, it will be
told to forget. Its release is under way and has not been heard; or its user has crashed, and that has not
been reported.

The same model, in which a release is not lost before it is heard, and managers know who was reported to them.
"""

from kit.language import both, either, forall, implies

from house.model import build


def model(without=()):
    w = build("house, no residue", without)
    m = w.model
    User, Request, Manager, Stance = w.User, w.Request, w.Manager, m.sorts[-1]
    symbol = {symbol.name: symbol for symbol in m.symbols}
    entry, choosing, over = symbol["entry"], symbol["choosing"], symbol["over"]
    tried, queued, released = symbol["tried"], symbol["queued"], symbol["released"]
    crashed = m.relation("crashed", User)
    reported = m.relation("reported", Manager, User)  # As departed or reclaimed

    m.steps["crash"].insert(crashed, m.steps["crash"].parameters[0])
    for name in ("departed", "reclaimed"):
        step = m.steps[name]
        step.insert(reported, *step.parameters)
    home, (k, h) = m.steps["home_departed"], m.steps["home_departed"].parameters
    theirs = lambda u: w.home_of(u) == h
    home.insert_where(reported, lambda j, u: both(j == k, theirs(u)))
    home.when(
        forall(lambda r=Request: implies(theirs(w.user(r)), both(~tried(k, r), ~released(k, r)))),
        forall(lambda r=Request, n=Stance: implies(theirs(w.user(r)), ~queued(k, r, n))), rule="Silence")
    home.when(forall(lambda u=User: implies(theirs(u), w.stopped(u))), rule="Departure: there will be no others")
    lose = m.steps["lose_released"]
    lose.when(over(*lose.parameters), rule="Delivery")

    known = lambda k, r: either(entry(k, r), choosing(k, r))
    m.always("what is over is forgotten", lambda k=Manager, r=Request: implies(over(k, r), ~known(k, r)))
    m.always("what has ended is released", lambda k=Manager, r=Request: implies(
        both(w.asked(r), ~w.quest(r), ~crashed(w.user(r)), ~reported(k, w.user(r)), w.has_part(r, k)),
        either(released(k, r), over(k, r))))
    m.always("the reported are forgotten", lambda k=Manager, r=Request: implies(reported(k, w.user(r)), ~known(k, r)))
    m.always("the reported are not heard", lambda k=Manager, r=Request: implies(
        reported(k, w.user(r)), either(over(k, r), both(w.stopped(w.user(r)), ~tried(k, r)))))
    m.always("nor are their stances", lambda k=Manager, r=Request, n=Stance: implies(
        reported(k, w.user(r)), either(over(k, r), ~queued(k, r, n))))
    m.always("the reported have retired", lambda k=Manager, u=User: implies(reported(k, u), w.retired(u)))
    m.always("what is known was asked for", lambda k=Manager, r=Request: implies(known(k, r), w.asked(r)))
    m.always("only parts are known", lambda k=Manager, r=Request: implies(known(k, r), w.has_part(r, k)))
    m.always("only parts try", lambda k=Manager, r=Request: implies(tried(k, r), w.has_part(r, k)))
    m.always("only parts queue", lambda k=Manager, r=Request, n=Stance: implies(queued(k, r, n), w.has_part(r, k)))
    m.theorem("no residue", lambda k=Manager, r=Request: implies(
        both(known(k, r), ~w.quest(r)),
        either(both(released(k, r), ~over(k, r)), both(crashed(w.user(r)), ~reported(k, w.user(r))))))
    return m


# Beside what exclusion needs.
RULES = {
    "ended": {f"{step}/{what}" for step in ("on_try", "say_no", "on_queue")
              for what in ("what is over is forgotten", "the reported are forgotten")},
    "implied": {"end_earlier/what is over is forgotten"},
    "purge": {f"{step}/{what}" for step in ("reclaimed", "departed")
              for what in ("the reported are forgotten", "the reported are not heard", "nor are their stances")}
             | {"home_departed/the reported are forgotten"},
}

DUTIES = {
    "Delivery": {"lose_released/what has ended is released"},
    "Silence": {"home_departed/the reported are not heard", "home_departed/nor are their stances"},
    "Departure: there will be no others": {
        "home_departed/the reported are not heard", "home_departed/the reported have retired"},
}
