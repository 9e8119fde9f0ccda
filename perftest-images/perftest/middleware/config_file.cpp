#include "config_file.h"

#include <tinyxml2.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace k8sdds {
namespace {

using tinyxml2::XMLElement;
using tinyxml2::XMLNode;

constexpr size_t max_bytes = 64 << 10;

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

bool same_name(const char* a, const std::string& b) { return lower(a) == lower(b); }

// Whether a path is the other one or below it.
bool is_within(const std::string& path, const std::string& top) {
    return path.compare(0, top.size(), top) == 0 && (path.size() == top.size() || path[top.size()] == '/');
}

enum class Match { refused, above, allowed };

// Returns what the rules are for an element. The first rule that matches it decides; otherwise it may be above an
// allowed element.
Match match(const std::string& path, const ConfigRules& rules) {
    Match result = Match::refused;
    for (const char* rule : rules.paths) {
        const bool refused = *rule == '-';
        const std::string top = lower(rule + (refused ? 1 : 0));
        if (is_within(path, top)) return refused ? Match::refused : Match::allowed;
        if (!refused && is_within(top, path)) result = Match::above;
    }
    return result;
}

// A document type can declare entities and name other files.
bool has_declarations(const XMLNode* node) {
    for (auto child = node->FirstChild(); child; child = child->NextSibling())
        if (child->ToUnknown() || has_declarations(child)) return true;
    return false;
}

std::string read_text(const std::string& path, std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) return std::strerror(errno);
    text.resize(max_bytes + 1);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    const bool failed = std::ferror(file);
    std::fclose(file);
    if (failed) return "cannot be read; give an XML file";
    return text.size() > max_bytes ? "is longer than " + std::to_string(max_bytes) + " bytes; shorten it" : "";
}

}  // namespace

ConfigFile::ConfigFile() : document_(std::make_unique<tinyxml2::XMLDocument>()) {}
ConfigFile::~ConfigFile() = default;

std::string ConfigFile::problem(const XMLElement* e, const std::string& why) const {
    return "-middlewareConfig: " + path_ + ":" + std::to_string(e->GetLineNum()) + ": <" + e->Name() + ">: " + why;
}

std::string ConfigFile::read(const std::string& path, const ConfigRules& rules) {
    path_ = path;
    document_->Clear();
    if (path.empty()) return "";
    std::string text;
    const std::string unreadable = read_text(path, text);
    if (!unreadable.empty()) return "-middlewareConfig: " + path + ": " + unreadable;
    if (document_->Parse(text.data(), text.size()) != tinyxml2::XML_SUCCESS)
        return "-middlewareConfig: " + path + ":" + std::to_string(document_->ErrorLineNum()) +
               ": not well-formed XML; correct it";
    const XMLElement* root = document_->RootElement();
    if (!same_name(root->Name(), rules.root))
        return problem(root, std::string("the root element must be <") + rules.root + ">");
    if (root->NextSiblingElement()) return problem(root->NextSiblingElement(), "a second root element; remove it");
    if (has_declarations(document_.get())) return problem(root, "the file declares a document type; remove it");
    if (text.find('$') != std::string::npos)
        return problem(root, "the file contains '$', but variables are not expanded; write their values");
    return check(root, "", rules);
}

std::string ConfigFile::check(const XMLElement* parent, const std::string& path, const ConfigRules& rules) const {
    for (auto e = parent->FirstChildElement(); e; e = e->NextSiblingElement()) {
        const std::string below = (path.empty() ? "" : path + "/") + lower(e->Name());
        const Match matched = match(below, rules);
        if (matched == Match::refused) return problem(e, rules.reserved);
        // find() sees only the first of these.
        if (matched == Match::above && e->PreviousSiblingElement(e->Name()))
            return problem(e, "given twice; give it once");
        const std::string why = check(e, below, rules);
        if (!why.empty()) return why;
    }
    return "";
}

const XMLElement* ConfigFile::find(const std::string& path) const {
    const XMLElement* e = document_->RootElement();
    for (size_t from = 0; e && from <= path.size();) {
        const size_t to = std::min(path.find('/', from), path.size());
        const std::string name = path.substr(from, to - from);
        e = e->FirstChildElement();
        while (e && !same_name(e->Name(), name)) e = e->NextSiblingElement();
        from = to + 1;
    }
    return e;
}

std::string ConfigFile::text() const {
    if (!document_->RootElement()) return "";
    tinyxml2::XMLPrinter printer(nullptr, true);
    document_->RootElement()->Accept(&printer);
    return printer.CStr();
}

}  // namespace k8sdds
