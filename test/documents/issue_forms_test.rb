# frozen_string_literal: true

require "test_helper"
require "open3"
require "yaml"

# The forms of .github/ISSUE_TEMPLATE are such as the forge shows, and ask for what it takes to find a fault.
class IssueFormsTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  FORMS = Dir["#{ROOT}/.github/ISSUE_TEMPLATE/*.yml"].sort
    .to_h { |path| [File.basename(path, ".yml"), YAML.load_file(path)] }.except("config").freeze
  ASKED = /ruby -r heddle\/doctor -e "([^"]+)"/

  def test_forms
    refute_empty FORMS
    FORMS.each do |name, form|
      assert_empty form.keys - %w[name description labels body], name
      questions = form.fetch("body").reject { |part| part["type"] == "markdown" }
      assert_equal %w[textarea], questions.map { |part| part["type"] }.uniq, name
      assert_equal questions.map { |part| part["id"] }.uniq, questions.filter_map { |part| part["id"] }, name
      questions.each { |part| refute_empty part.fetch("attributes").fetch("label") }
      assert_includes questions.map { |part| part.dig("validations", "required") }, true, name
    end
  end

  # By a command that works.
  def test_they_ask_for_the_doctors_words
    FORMS.each do |name, form|
      asked = form.fetch("body").find { |part| part["id"] == "doctor" }.dig("attributes", "description")
      assert_includes asked, "`heddle doctor`", name
      said, status = Open3.capture2e(RbConfig.ruby, "-I#{ROOT}/lib", "-r", "heddle/doctor", "-e", asked[ASKED, 1])
      assert_predicate status, :success?, said
      assert_match(/^backend: /, said)
    end
    assert FORMS.fetch("fault").fetch("body").find { |part| part["id"] == "doctor" }.dig("validations", "required")
  end
end
