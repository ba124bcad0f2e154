# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # The text that --help prints, folded to the terminal's width: the lists of models are long.
      module Help
        # A name or an option, in front of what it means.
        NAMED = /\A(?<name> *\S.*?) {2,}(?=\S)/
        # A narrower terminal has the meaning beneath the name.
        NARROW = 72
        BENEATH = 8
        WIDEST = 100
        private_constant :NAMED, :NARROW, :BENEATH, :WIDEST

        module_function

        # @param text [String] of OptionParser
        # @param out [IO]
        # @return [Integer] 0
        def print(text, out)
          out.puts fold(text, [Terminal.width(out) || WIDEST, WIDEST].min)
          0
        end

        # @param text [String]
        # @param width [Integer]
        # @return [String]
        def fold(text, width)
          text.lines(chomp: true).flat_map { |line| fold_line(line, width) }.join("\n")
        end

        def fold_line(line, width)
          return [line] if line.size <= width

          named = NAMED.match(line)
          indent = named ? named.end(0) : line[/\A */].size
          name, meaning = named ? [named[:name], named.post_match] : ["", line.lstrip]
          return folded_beneath(name, meaning, width) if width < NARROW && indent > BENEATH

          first, *rest = pieces(meaning, width, " " * indent)
          [name.ljust(indent) + first.lstrip, *rest]
        end
        private_class_method :fold_line

        def folded_beneath(name, meaning, width)
          [*(name.rstrip unless name.empty?), *pieces(meaning, width, " " * BENEATH)]
        end
        private_class_method :folded_beneath

        # Folds after a space, and in a list after a comma.
        def pieces(text, width, indent)
          text.scan(/[^\s,]+(?:,+(?!\s)|,?\s*)|,/).each_with_object([+""]) do |word, lines|
            lines << +"" if !lines.last.empty? && (lines.last + word).rstrip.size > width - indent.size
            lines.last << word
          end.map { |line| "#{indent}#{line}".rstrip }
        end
        private_class_method :pieces
      end
    end
  end
end
