#pragma once
// The arguments of earlier calls in the form that a template takes. Clients of OpenAI's interface
// send a text in JSON, others an object; one template joins a text to others, another walks over an
// object, a third takes both. Which it is, the template says of the conversation itself: it is
// rendered with arguments that are known.

#include "text/chat_template.h"

namespace subbyte {

/// Leaves arguments as they were sent where the template shows a text as it is written, and an
/// object's members. Where it takes the other form alone, a text becomes the object that it spells,
/// and an object the text of it. A call without arguments has an empty object, in either form.
void fit_arguments(const ChatTemplate& own, TemplateInput& input);

}  // namespace subbyte
