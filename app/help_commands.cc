// subbyte help, man and completion.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/command.h"
#include "app/help.h"
#include "app/output.h"
#include "app/terminal.h"
#include "app/wrap.h"
#include "base/near_words.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

/// What help there is.
std::vector<std::string> names_of(const Program& program) {
  std::vector<std::string> names;
  for (const CommandInfo& command : program.commands) names.push_back(command.name);
  for (const Topic& topic : program.topics) names.emplace_back(topic.name);
  return names;
}

Result<std::string> help_on(const Program& program, const std::string& name) {
  if (name.empty()) return program_text(program, columns_of(stdout));
  const auto topic = std::ranges::find(program.topics, name, &Topic::name);
  if (topic != program.topics.end()) {
    const int columns = columns_of(stdout);
    return wrap(topic->title, columns) + "\n\n" + wrap(topic->text(), columns, 4);
  }
  const auto command = std::ranges::find(program.commands, name, &CommandInfo::name);
  if (command != program.commands.end()) return command_text(program, *command, columns_of(stdout));
  const std::string near = did_you_mean(name, names_of(program));
  return Error{"usage.help", fmt::format("no command and no topic {}{}", quote(name),
                                         near.empty() ? "; `subbyte help` lists them" : near)};
}

ExitCode print_text(const std::string& text) {
  print(stdout, text);
  return kOk;
}

}  // namespace

void add_help(Program& program, Invocation&) {
  Command command = program.add_command("help", "Explain a command, the environment or exit codes",
                                        "  subbyte help run\n"
                                        "  subbyte help environment");
  auto name = std::make_shared<std::string>();
  std::vector<std::string> names;
#define SUBBYTE_COMMAND(name) names.emplace_back(#name);
#include "app/commands.def"
#undef SUBBYTE_COMMAND
  for (const Topic& topic : program.topics) names.emplace_back(topic.name);
  command
      .option("NAME", *name,
              "a command or one of these other things: environment, exit-codes, other-programs")
      .such_as(std::move(names));
  command.run([name, &program]() -> Result<ExitCode> {
    SUBBYTE_TRY(const std::string text, help_on(program, *name));
    return print_text(text);
  });
}

void add_man(Program& program, Invocation&) {
  Command command = program.add_command("man", "Print this help as a man page",
                                        "  subbyte man > ~/.local/share/man/man1/subbyte.1\n"
                                        "  subbyte man | man -l -");
  command.run([&program] { return Result(print_text(man_page(program))); });
}

void add_completion(Program& program, Invocation&) {
  Command command = program.add_command("completion", "Print what completes commands in a shell",
                                        "  source <(subbyte completion bash)\n"
                                        "  subbyte completion fish > "
                                        "~/.config/fish/completions/subbyte.fish");
  auto shell = std::make_shared<std::string>();
  command.option("SHELL", *shell, "the shell").one_of({"bash", "zsh", "fish"}).required();
  command.run([shell, &program] { return Result(print_text(completion_script(program, *shell))); });
}

}  // namespace subbyte::app
