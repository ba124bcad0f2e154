# frozen_string_literal: true

desc "Write the site to pages/: the API and the guides (rake doc), the committed results, and an index that links them"
task pages: :doc do
  require_relative "pages"
  Pages.new(api: "doc/api", results: FileList["bench/results/*.json"].sort).write("pages")
end
