// Pages of `subbyte help` that are about no command.

#include "app/help.h"

namespace subbyte::app {

const std::vector<Topic> kTopics = {
    {"environment", "Variables that the program reads",
     R"(HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE
    folder of the Hugging Face cache, in which org/name is looked up
HF_HOME
    folder whose hub/ is that cache, where neither is set
XDG_CACHE_HOME
    its huggingface/hub is the cache, where none of them is set; else
    ~/.cache/huggingface/hub
SUBBYTE_THREADS
    threads to work with, as --threads says (1 to 1024)
SUBBYTE_PIN
    1: each thread on a processor of its own, as --pin
SUBBYTE_ISA
    these CPU kernels instead of the best: scalar, avx2, avx512, avx512vnni,
    avx512bf16 or amx
SUBBYTE_STEP_TOKENS
    0 to 8: steps of at most so many single tokens run as one kernel on a GPU
    that has it (8)
SUBBYTE_PRINT_PLAN
    1: say on standard error how steps of each size run: as one kernel, as a
    graph, as launches
NO_COLOR
    set to anything: no colours
TERM
    dumb: no colours, no progress bars, no line editing
)"},
    {"exit-codes", "What the program returns",
     R"(0   done
1   it failed; one line on standard error says why, with a stable code, such as
    subbyte: error: ./m: no such model [model.not_found]
2   the command line or a variable is wrong; a line of the same form
3   inspect, verify or diff found what they look for: problems, differences
128 + number of the signal that ended it (130: Ctrl-C)
)"},
};

}  // namespace subbyte::app
