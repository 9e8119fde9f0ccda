module k8sdds/bundle/probe

go 1.26.0
