"""What a worker is called by people who gave it no name: two words, of its key."""

from __future__ import annotations

from hashlib import blake2b

MANNERS = (
    "able amber ample apt basic blithe bold brave breezy brief bright brisk calm candid canny "
    "civil clear clever cosy crisp curious daring deft dewy eager early easy even fair fleet "
    "fond frank free fresh gentle glad golden grand hardy hearty humble ideal jolly keen kind "
    "late lively loyal lucid lucky mellow merry mild modest neat nimble noble patient placid "
    "plain polite proud quick quiet ready robust rosy round sage serene sharp silent silver "
    "simple sly smart snowy sober solid spry steady still stout sunny supple sure swift tidy "
    "true trusty warm wary wise witty zesty"
)
ANIMALS = (
    "adder auk badger bat bear beaver bee bison boar bream bunting carp chough civet cod "
    "condor coot crab crane cricket curlew deer dipper dove duck eagle eel egret eider elk "
    "falcon ferret finch fox frog gannet gecko goat goose grebe grouse gull hare hawk heron "
    "hoopoe hornet ibex ibis jackdaw jay kestrel kite koi lark limpet linnet lizard llama "
    "lynx magpie marten merlin mink mole moose moth mouse newt nuthatch otter owl oyster "
    "perch pigeon pike plover pony puffin quail rabbit raven robin salmon seal shrew shrike "
    "siskin skua snail snipe sparrow squid stag starling stoat stork swan swift tern thrush "
    "tit toad trout turtle vole wagtail warbler weasel whale wolf wren yak"
)


def label_of(worker: str) -> str:
    """A label such as `calm-otter`: always the same of one worker, and seldom that of another."""
    drawn = int.from_bytes(blake2b(worker.encode(), digest_size=8).digest(), "little")
    manners, animals = MANNERS.split(), ANIMALS.split()
    rest, manner = divmod(drawn, len(manners))
    return f"{manners[manner]}-{animals[rest % len(animals)]}"
