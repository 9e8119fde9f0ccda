#include "xml_text.h"

#include <tinyxml2.h>

#include "user_file.h"

namespace k8sdds {
namespace {

bool declares(const tinyxml2::XMLNode* node) {
    for (auto child = node->FirstChild(); child; child = child->NextSibling())
        if (child->ToUnknown() || declares(child)) return true;
    return false;
}

std::string at_line(int line) { return line ? ":" + std::to_string(line) + ": " : ": "; }

}  // namespace

std::string parse_xml(const std::string& text, tinyxml2::XMLDocument& document) {
    if (document.Parse(text.data(), text.size()) != tinyxml2::XML_SUCCESS)
        return at_line(document.ErrorLineNum()) + "not well-formed XML; correct it";
    const tinyxml2::XMLElement* root = document.RootElement();
    if (!root) return ": contains no element; give an XML file with a root element";
    if (const auto* second = root->NextSiblingElement())
        return at_line(second->GetLineNum()) + "a second root element; remove it";
    if (declares(&document)) return at_line(root->GetLineNum()) + "the file declares a document type; remove it";
    return "";
}

std::string read_xml(const std::string& path, tinyxml2::XMLDocument& document, std::string& text) {
    const std::string unreadable = read_text(path, text);
    return unreadable.empty() ? parse_xml(text, document) : ": " + unreadable;
}

}  // namespace k8sdds
