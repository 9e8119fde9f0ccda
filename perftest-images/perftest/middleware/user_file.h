// The one way in which files of the user are read. They may come from anywhere.
#pragma once

#include <cstddef>
#include <string>

namespace k8sdds {

// Reads a file of at most so many bytes. Returns why it cannot be read, with the fix; empty if it was.
std::string read_text(const std::string& path, std::string& text, size_t max_bytes = 64 << 10);

}  // namespace k8sdds
