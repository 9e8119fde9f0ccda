module k8sdds/bundle/pause

go 1.26.0
