module k8sdds/bundle/meter

go 1.26.0
