// The user's own configuration file of a middleware (-middlewareConfig). It applies in addition to the settings of the
// options and must not contain them. The file may come from anywhere, so everything in it is checked first.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tinyxml2 {
class XMLDocument;
class XMLElement;
}  // namespace tinyxml2

namespace k8sdds {

// What a configuration file may contain. Paths are relative to the root element; letter case does not matter.
struct ConfigRules {
    const char* root;                         // name of the root element
    std::vector<const char*> paths;           // of allowed elements, with all that they contain; "-PATH" refuses a part
    const char* reserved;                     // reason for which other elements are refused
};

class ConfigFile {
public:
    ConfigFile();                             // an empty file
    ~ConfigFile();

    // Reads and checks a file. Returns why it is refused, with the line and the fix; empty if it is not.
    std::string read(const std::string& path, const ConfigRules& rules);
    std::string parse(const std::string& path, const std::string& text, const ConfigRules& rules);    // its content

    const tinyxml2::XMLElement* find(const std::string& path) const;   // nullptr: the file does not contain it
    bool has(const std::string& path) const { return find(path) != nullptr; }
    std::string text() const;                 // the checked content; empty without a file

    // Returns a message that names file, line and element.
    std::string problem(const tinyxml2::XMLElement*, const std::string& why) const;

private:
    std::string accept(const std::string& refused, const std::string& text, const ConfigRules& rules) const;
    std::string check(const tinyxml2::XMLElement* parent, const std::string& path, const ConfigRules& rules) const;

    std::string path_;
    std::unique_ptr<tinyxml2::XMLDocument> document_;
};

}  // namespace k8sdds
