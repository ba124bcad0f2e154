# frozen_string_literal: true

require "cgi"
require "digest"
require "fileutils"
require "json"

module Heddle
  module Lab
    module Report
      # One file of HTML that a browser opens without a server and without a network: style, program and figures are in
      # it, and it forbids itself everything else.
      module Document
        FOLDER = File.expand_path("page", __dir__)
        private_constant :FOLDER

        module_function

        # @param frame [String] name of the file with the elements
        # @param styles [Array<String>] names of files
        # @param scripts [Array<String>] names of files; each sees what those in front of it declare
        # @param title [String]
        # @param data [Object] for the program, as JSON
        # @return [String]
        def html(frame, styles:, scripts:, title:, data:)
          style, script = [styles, scripts].map { |names| names.map { |name| part(name) }.join }
          parts = {"policy" => policy(style, script), "title" => CGI.escapeHTML(title), "style" => style,
                   "script" => script, "data" => embedded(data)}
          part(frame).gsub(/\{\{(\w+)\}\}/) { parts.fetch($1) }
        end

        # @param path [String] its folder is made where it is missing
        # @param html [String]
        # @return [void]
        # @raise [Error] when the file cannot be written
        def write(path, html)
          FileUtils.mkdir_p(File.dirname(path))
          File.write(path, html)
        rescue SystemCallError => error
          raise Error, "cannot write the page: #{error.message}"
        end

        def part(name) = File.read(File.join(FOLDER, name), encoding: Encoding::UTF_8)
        private_class_method :part

        def policy(style, script)
          "default-src 'none'; style-src #{source(style)}; script-src #{source(script)}; base-uri 'none'; " \
            "form-action 'none'"
        end
        private_class_method :policy

        def source(text) = "'sha256-#{Digest::SHA256.base64digest(text)}'"
        private_class_method :source

        # Without "<" no text of a record can end the element, or begin a comment in it.
        def embedded(data) = JSON.generate(data).gsub("<", '\u003c')
        private_class_method :embedded
      end
    end
  end
end
