# frozen_string_literal: true

desc "Ask the libraries of test/compatibility what becomes of requests under Heddle, and write doc/compatibility.md; " \
     "RUBIES=4.0 and LIBRARIES=excon,pg narrow"
task :compatibility do
  ENV.fetch("RUBIES", "4.0 3.1").split.each do |ruby|
    sh "script/install-gems", ruby, "compatibility"
    # HEDDLE_NEWEST asks for the newest libraries, not for the newest of what Heddle is built with.
    with_ruby = ["script/with-ruby", ruby, "bundle", "exec"]
    sh({"HEDDLE_NEWEST" => nil}, *with_ruby, "rake", "--quiet", "compile", "compile:server")
    sh({"HEDDLE_BUNDLE" => "compatibility"}, *with_ruby, "ruby", "test/compatibility/survey.rb",
      *ENV["LIBRARIES"]&.split(","))
  end
  Rake::Task["compatibility:page"].invoke
end

namespace :compatibility do
  desc "Write doc/compatibility.md from the answers that are kept; fails at a fault for which no reason is given"
  task :page do
    require_relative "../test/compatibility/page"
    Compatibility::Page.write
    complaints = Compatibility::Page.new.complaints
    abort complaints.join("\n") if complaints.any?
  end
end
