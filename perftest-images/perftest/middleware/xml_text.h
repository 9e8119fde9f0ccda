// The one way in which XML files of the user are read. They may come from anywhere.
#pragma once

#include <string>

namespace tinyxml2 {
class XMLDocument;
}

namespace k8sdds {

// Reads a file with exactly one root element and no document type, which could declare entities and name other files.
// Returns why it is refused, with the line and the fix, to be appended to the path; empty if it is not. `text` gets what
// the file contains.
std::string read_xml(const std::string& path, tinyxml2::XMLDocument& document, std::string& text);

// The same for a text.
std::string parse_xml(const std::string& text, tinyxml2::XMLDocument& document);

}  // namespace k8sdds
