// The one way in which files of the user are read. They may come from anywhere.
#pragma once

#include <string>

namespace k8sdds {

// Reads a file of at most 64 KiB. Returns why it cannot be read, with the fix; empty if it was.
std::string read_text(const std::string& path, std::string& text);

}  // namespace k8sdds
