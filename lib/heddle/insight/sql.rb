# frozen_string_literal: true

require_relative "clean"

module Heddle
  module Insight
    # The text of a statement without values, which nobody but the program may see.
    #
    # @api private
    module SQL
      # Before a quote, a digit or a dollar sign: this character makes it a part of a name.
      IN_NAME = /(?<![\w$[^\x00-\x7f]])/
      # Strings of each kind, and numbers. What MySQL has in double quotes may be a value: so is what others have there,
      # as names. Whether a backslash before a quote is a part of the string depends on the database.
      VALUE = /#{IN_NAME}\$(?<tag>[\w[^\x00-\x7f]]*)\$.*?(?:\$\k<tag>\$|\z)|
        (?:#{IN_NAME}[ebnx])?'(?:[^'\\]|''|\\[^'])*(?:'|\\'.*|\\?\z)|"(?:[^"\\]|""|\\[^"])*(?:"|\\".*|\\?\z)|
        #{IN_NAME}\d[\w.]*(?:(?<=e)[+-]\d+)?/mix
      COMMENT = %r{--(?=\s|\z)[^\r\n]*(?=\r?\n|\z)|/\*(?!M?!)(?:(?!/\*|\*/).)*(?:\*/|\z)}m
      NAME = /`(?:[\w .[^\x00-\x7f]]|-(?!-))*`/
      # Names in some databases, and subscripts in others, where both end alike.
      BRACKETS = %r{\[(?>(?:(?!--|/\*)[^\]'"`\#$]|\$(?=\d)|'[^'\]\\]*'|"[^"\]\\]*"){0,100})(?:\]|\z)}
      # What one database takes for the beginning of a comment, and another for an operator; comments that nest, end or
      # are run in one of them only; brackets that are not BRACKETS. All that follows may be a value.
      UNCERTAIN = %r{(?:\#|`|--|/\*|#{IN_NAME}n?q'|(?!#{BRACKETS})\[).*}mi
      TOKEN = /(?<name>#{NAME})|(?<comment>#{COMMENT})|#{UNCERTAIN}|#{VALUE}/
      LONGEST = 2000 # bytes
      private_constant :IN_NAME, :VALUE, :COMMENT, :NAME, :BRACKETS, :UNCERTAIN, :TOKEN, :LONGEST

      module_function

      # @param text [String]
      # @return [String]
      def without_values(text)
        text = text.byteslice(0, LONGEST).force_encoding(Encoding::UTF_8).scrub("?")
        text = text.gsub(TOKEN) { $~[:name] || ($~[:comment] ? " " : "?") }
        Clean.clean(text.gsub(/\s+/, " "))
      end
    end
  end
end
