// Files for the participant that arrive on standard input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace k8sdds {

struct ReceivedFile {
    bool secret = false;  // only for its owner
    std::size_t size = 0;
    std::string path;     // absolute
};

// Reads the line "file MODE SIZE PATH". Throws Failure(kUsage) if it is none.
ReceivedFile parse_received_file(const std::string& line);

// Writes the file, and creates the folders of its path that do not exist. Throws Failure(kPrerequisite).
void save(const ReceivedFile& file, const std::string& content);

// Creates a directory, and those above it, if it does not exist. An existing one keeps its mode.
void create_directory(const std::string& name, bool secret);

// Throws Failure(kPrerequisite).
void write_all(int fd, std::string_view data);

}  // namespace k8sdds
