// subbyte help, man and completion.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/command.h"
#include "app/help.h"
#include "app/output.h"
#include "app/terminal.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

Result<std::string> help_on(const ProgramHelp& help, const std::string& name) {
  if (name.empty()) return program_text(help, terminal_columns());
  const auto topic = std::ranges::find(kTopics, name, &Topic::name);
  if (topic != kTopics.end()) return fmt::format("{}\n\n{}", topic->title, topic->text);
  const auto command = std::ranges::find(help.commands, name, &CommandHelp::name);
  if (command != help.commands.end()) return command_text(help, *command, terminal_columns());
  return Error{"usage.help",
               fmt::format("no command and no topic {}; `subbyte help` lists them", quote(name))};
}

ExitCode print_text(const std::string& text) {
  print(stdout, text);
  return kOk;
}

ProgramHelp describe(const CLI::App& app) {
  return {describe_program(app), describe_commands(app)};
}

}  // namespace

void add_help(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "help", "Explain a command, the environment or exit codes",
                                "  subbyte help run\n"
                                "  subbyte help environment");
  auto name = std::make_shared<std::string>();
  command.option("NAME", *name, "a command, environment or exit-codes");
  command.callback([name, &app, &invocation] {
    invocation.run = [name, &app]() -> Result<ExitCode> {
      SUBBYTE_TRY(const std::string text, help_on(describe(app), *name));
      return print_text(text);
    };
  });
}

void add_man(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "man", "Print this help as a man page",
                                "  subbyte man > ~/.local/share/man/man1/subbyte.1\n"
                                "  subbyte man | man -l -");
  command.callback([&app, &invocation] {
    invocation.run = [&app]() -> Result<ExitCode> { return print_text(man_page(describe(app))); };
  });
}

void add_completion(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "completion", "Print what completes commands in a shell",
                                "  source <(subbyte completion bash)\n"
                                "  subbyte completion fish > "
                                "~/.config/fish/completions/subbyte.fish");
  auto shell = std::make_shared<std::string>();
  command.option("SHELL", *shell, "the shell").one_of({"bash", "zsh", "fish"}).required();
  command.callback([shell, &app, &invocation] {
    invocation.run = [shell, &app]() -> Result<ExitCode> {
      return print_text(completion_script(describe(app), *shell));
    };
  });
}

}  // namespace subbyte::app
